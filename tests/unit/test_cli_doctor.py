"""`queuelake doctor`: it sees what is wrong, says what mends it, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from queuelake.cli import checks
from queuelake.cli import main as cli

FREE_PORTS = [f"--set={key}.port=0" for key in ("listeners.mqtt", "listeners.ws", "http", "flight")]


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[Any]]:
    code = cli.run(["doctor", "--json", *FREE_PORTS, *arguments])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == (code == 0)
    assert all(check["mend"] for check in report["checks"] if check["status"] == "fail")
    return code, report["checks"]


def find(found: list[Any], name: str) -> Any:
    return next(check for check in found if check["name"] == name)


def test_a_good_place_has_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = diagnose(capsys, "--data-dir", str(tmp_path / "data"))
    assert code == 0, found
    assert not (tmp_path / "data").exists()
    names = {check["name"] for check in found}
    assert names >= {
        *("configuration", "event loop", "hot path", "data directory", "file system"),
        *("disk", "store", "open files", "access"),
    }


def test_the_report_for_people_has_a_line_for_each_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor", *FREE_PORTS, "--data-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok    configuration")
    assert all(line[:5].strip() in ("ok", "warn", "") for line in lines)


def test_every_mistake_of_the_configuration_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = diagnose(capsys, "--set", "log.level=x", "--set", "nosuch=1")
    assert code == 1
    assert [check["status"] for check in found[:2]] == ["fail", "fail"]
    assert find(found, "hot path")


def test_a_port_of_another_program_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        arguments = ("--data-dir", str(tmp_path), "--set", f"listeners.mqtt.port={port}")
        code, found = diagnose(capsys, *arguments)
        assert code == 1
        assert "another program" in find(found, "port listeners.mqtt")["message"]
        if sys.platform == "linux":
            assert checks.listens(os.getpid(), port)
        assert not checks.listens(os.getpid(), 1)
    code, found = diagnose(capsys, *arguments)
    assert find(found, "port listeners.mqtt")["status"] == "ok"


def test_an_address_of_another_machine_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "--data-dir",
        str(tmp_path),
        "--set",
        "http.bind=192.0.2.1",
        "--set",
        "http.port=9",
    )
    code, found = diagnose(capsys, *arguments)
    assert code == 1
    assert find(found, "port http")["status"] == "fail"


def test_a_data_directory_that_is_a_file_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("")
    code, found = diagnose(capsys, "--data-dir", str(tmp_path / "data"))
    assert code == 1
    assert "not a directory" in find(found, "data directory")["message"]


def test_a_store_of_another_format_or_no_store_at_all_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    with lmdb.open(str(store), max_dbs=4) as environment:
        table = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            transaction.put(b"format", b"999", db=table)
    code, found = diagnose(capsys, "--data-dir", str(tmp_path))
    assert code == 1
    assert "format 999" in find(found, "store")["message"]
    (store / "data.mdb").write_bytes(b"no" * 5000)
    code, found = diagnose(capsys, "--data-dir", str(tmp_path))
    assert code == 1
    assert "does not open" in find(found, "store")["message"]


def test_a_full_disk_and_a_network_file_system_are_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/x / ext4 rw 0 0\nserver:/x {tmp_path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(checks, "MOUNTS", mounts)
    monkeypatch.setattr(checks, "DISK_FREE_BYTES_FAIL", 2**80)
    code, found = diagnose(capsys, "--data-dir", str(tmp_path / "data"))
    assert code == 1
    assert "nfs4" in find(found, "file system")["message"]
    assert find(found, "disk")["status"] == "fail"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/data/x", "xfs"), ("/database", "ext4"), ("/my disk/x", "nfs")],
)
def test_the_longest_mount_point_counts(path: str, kind: str) -> None:
    mounts = (
        "rootfs / rootfs rw 0 0\n/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw 0 0\n"
        "h:/ /my\\040disk nfs rw 0 0\n"
    )
    assert checks.file_system(path, mounts) == kind


def test_a_broken_line_in_the_password_file_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    users.write_text("alice:plain\n")
    users_option = ("--set", f"auth.password_file={users}")
    code, found = diagnose(capsys, "--data-dir", str(tmp_path / "d"), *users_option)
    assert code == 1
    assert "line 1" in find(found, "access")["message"]


def test_too_few_open_files_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ("--set", "limits.connections_max=2000000000")
    code, found = diagnose(capsys, "--data-dir", str(tmp_path), *many)
    assert code == 0
    assert find(found, "open files")["status"] == "warn"


def test_rules_kept_by_the_broker_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "acl.toml"
    path.write_text('[[acl]]\npermission = "allow"\ntopics = ["a/#"]\n')
    code, found = diagnose(capsys, "--data-dir", str(tmp_path))
    assert code == 0
    assert any(check["message"] == f"{path}: 1 rules" for check in found)
    path.write_text('[[acl]]\npermission = "perhaps"\ntopics = ["a/#/b"]\n')
    code, found = diagnose(capsys, "--data-dir", str(tmp_path))
    assert code == 1
    failures = [check["message"] for check in found if check["status"] == "fail"]
    assert len(failures) == 2
    assert all(str(path) in message for message in failures)
