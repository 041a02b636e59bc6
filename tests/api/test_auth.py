from __future__ import annotations

import re
import stat
import threading
import time
from pathlib import Path

import pytest

from queuelake.admin import auth
from queuelake.apikey import KeyFile, ensure_api_key, read_api_key
from queuelake.errors import ConfigError
from tests.api.live import Answer, LiveAdmin, basic, fetch


def is_problem(answer: Answer) -> bool:
    return set(answer.json) == {"code", "message"} and all(answer.json.values())


def test_every_route_but_the_two_open_ones_needs_the_key(admin: LiveAdmin) -> None:
    seen = 0
    for route in admin.app.routes:
        path = re.sub(r"\{.*?\}", "x", route.path)  # type: ignore[attr-defined]
        for method in route.methods:  # type: ignore[attr-defined]
            answer = fetch(admin.port, path, method=method)
            if path in ("/healthz", "/readyz"):
                assert answer.status == 200
                continue
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic")
            assert answer.json["code"] == "API_KEY_MISSING"
            seen += 1
    assert seen >= 7


def test_no_route_changes_anything_for_the_page_of_another_site(admin: LiveAdmin) -> None:
    seen = 0
    for route in admin.app.routes:
        path = re.sub(r"\{.*?\}", "x", route.path)  # type: ignore[attr-defined]
        for method in route.methods - {"GET"}:  # type: ignore[attr-defined]
            for origin in ("http://evil.example", "null", "", "http://[", "://"):
                answer = admin.fetch(path, method=method, headers={"Origin": origin})
                assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN"), path
                assert "another site" in answer.json["message"]
            seen += 1
    assert seen > 30


def test_our_own_pages_and_programs_change_things(admin: LiveAdmin) -> None:
    for headers in ({"Origin": f"http://127.0.0.1:{admin.port}"}, {}):
        answer = admin.fetch("/api/v1/clients/nobody", method="DELETE", headers=headers)
        assert answer.status == 404
    elsewhere = {"Origin": "http://evil.example"}
    assert admin.fetch("/api/v1/status", headers=elsewhere).status == 200


def test_without_a_key_nobody_learns_which_paths_exist(admin: LiveAdmin) -> None:
    assert fetch(admin.port, "/no/such/path").status == 401


def test_basic_and_bearer_are_accepted(admin: LiveAdmin) -> None:
    for header in (basic(admin.key), f"Bearer {admin.key}", f"bearer  {admin.key}"):
        assert fetch(admin.port, "/api/v1/status", authorization=header).status == 200


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Bearer", "Bearer x:y", "Digest a", basic("x:y"), "é"]
)
def test_a_wrong_key_is_refused_late(admin: LiveAdmin, header: str) -> None:
    started = time.monotonic()
    answer = fetch(admin.port, "/api/v1/status", authorization=header)
    assert answer.status == 401
    assert answer.json["code"] == "BAD_API_KEY"
    assert time.monotonic() - started >= auth.WRONG_KEY_DELAY_S * 0.9


def test_wrong_keys_slow_nobody_else_and_are_bounded(
    admin: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "SLOWED_MAX", 4)
    monkeypatch.setattr(auth, "WRONG_KEY_DELAY_S", 1.5)
    statuses: list[int] = []

    def guess() -> None:
        statuses.append(fetch(admin.port, "/metrics", authorization="Bearer a:b").status)

    guesses = [threading.Thread(target=guess) for _ in range(6)]
    for thread in guesses:
        thread.start()
    started = time.monotonic()
    assert admin.fetch("/api/v1/status").status == 200
    assert time.monotonic() - started < 1.0
    for thread in guesses:
        thread.join()
    assert sorted(statuses) == [401, 401, 401, 401, 429, 429]


def test_the_key_file_is_private_and_made_once(tmp_path: Path) -> None:
    ensure_api_key(tmp_path)
    path = tmp_path / "api-key"
    line = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"ql-[0-9a-f]{8}:[\w-]{43}\n", line)
    ensure_api_key(tmp_path)
    assert path.read_text() == line
    assert [file.name for file in tmp_path.iterdir()] == ["api-key"]


@pytest.mark.parametrize("text", ["", "nocolon\n", ":secret\n", "key:\n", "a:b\nc:d\n", "k:é\n"])
def test_a_key_file_that_is_not_one_line_key_secret_stops_the_start(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "api-key").write_text(text)
    with pytest.raises(ConfigError, match="API key file"):
        ensure_api_key(tmp_path)
    assert KeyFile(tmp_path).identify(text.strip().encode()) is None
    assert KeyFile(tmp_path).identify(b"") is None


def test_a_replaced_key_works_at_once_and_the_old_one_no_more(admin: LiveAdmin) -> None:
    assert admin.fetch("/api/v1/status").status == 200
    path = admin.data_dir / "api-key"
    path.unlink()
    assert admin.fetch("/api/v1/status").status == 401
    ensure_api_key(admin.data_dir)
    assert admin.fetch("/api/v1/status").status == 401
    admin.key = read_api_key(admin.data_dir)
    assert admin.fetch("/api/v1/status").status == 200
