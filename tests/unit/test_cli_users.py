"""`queuelake users`: files that the broker and mosquitto can read, written whole or not at all."""

from __future__ import annotations

import io
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queuelake.broker.auth.passwords import Grants, PasswordFile, hash_password
from queuelake.broker.auth.scram import ScramFile
from queuelake.broker.auth.useredit import Secret, UserEditor
from queuelake.cli import main as cli
from queuelake.errors import ConfigError

HASH = hash_password("x")


def run(*arguments: str, password: str | None = None) -> int:
    line = ["users", *arguments]
    if password is not None:
        line.append("--password-stdin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(f"{password}\n" if password is not None else ""))
        return cli.run(line)


def test_a_user_can_be_added_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert run("add", str(path), "alice", password="first") == 0
    assert run("add", str(path), "bob", password="bobs") == 0
    assert path.read_text().startswith("alice:$argon2id$")
    assert PasswordFile(str(path)).verify("alice", b"first")
    assert run("passwd", str(path), "alice", password="second") == 0
    assert not PasswordFile(str(path)).verify("alice", b"first")
    assert PasswordFile(str(path)).verify("alice", b"second")
    assert PasswordFile(str(path)).verify("bob", b"bobs")
    assert run("rm", str(path), "alice") == 0
    assert not PasswordFile(str(path)).verify("alice", b"second")
    assert len(PasswordFile(str(path))) == 1


def test_the_file_is_private_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# ours\n\nold:$7$101$c2FsdA==$aGFzaA==\n")
    path.chmod(0o644)
    assert run("add", str(path), "alice", password="x") == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["users"]
    assert path.read_text().startswith("# ours\n\nold:$7$101$c2FsdA==$aGFzaA==\nalice:$argon2id$")


def test_list_shows_names_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users"
    path.write_text("# a:comment\nbob:$7$x\nalice:$7$y\n")
    assert run("list", str(path)) == 0
    assert capsys.readouterr().out == "bob\nalice\n"
    assert run("list", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["bob", "alice"]


def test_scram_credentials_go_to_their_own_file(tmp_path: Path) -> None:
    path, scram = tmp_path / "users", tmp_path / "scram"
    options = ("--scram", str(scram))
    assert run("add", str(path), "alice", *options, password="x") == 0
    assert len(ScramFile(str(scram))) == 1
    before = scram.read_text()
    assert run("passwd", str(path), "alice", *options, password="y") == 0
    assert scram.read_text() != before
    assert len(ScramFile(str(scram))) == 1
    assert stat.S_IMODE(scram.stat().st_mode) == 0o600
    assert run("rm", str(path), "alice", *options) == 0
    assert len(ScramFile(str(scram))) == 0


def test_a_refused_command_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    assert run("add", str(path), "alice", password="x") == 0
    before = path.read_text()
    assert run("add", str(path), "alice", password="y") == 1
    assert "already in" in capsys.readouterr().err
    assert run("passwd", str(path), "bob", password="y") == 1
    assert run("rm", str(path), "bob") == 1
    assert "'bob' is not in" in capsys.readouterr().err
    assert run("add", str(path), "a:b", password="y") == 2
    assert run("add", str(path), "", password="y") == 2
    assert run("add", str(path), "carol", password="") == 1
    assert run("add", str(path), "carol") == 2  # no terminal to ask
    assert run("add", str(tmp_path / "none" / "users"), "carol", password="x") == 1
    assert run("list", str(tmp_path / "none")) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert path.read_text() == before


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("")
    link = tmp_path / "link"
    link.symlink_to(real)
    assert run("add", str(link), "alice", password="x") == 0
    assert link.is_symlink()
    assert "alice" in real.read_text()


def test_commands_at_the_same_time_lose_nobody(tmp_path: Path) -> None:
    path = tmp_path / "users"

    def add(number: int) -> None:
        UserEditor(path).add(f"u{number}", Secret(hashed=HASH), Grants())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(UserEditor(path).names()) == 40


def test_a_role_and_the_platform_flag_are_kept_beside_the_hash(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert run("add", str(path), "alice", "--role", "operator", "--platform", password="x") == 0
    assert run("add", str(path), "bob", password="x") == 0
    assert PasswordFile(str(path)).grants("alice") == Grants("operator", True)
    assert PasswordFile(str(path)).grants("bob") == Grants(None, False)
    assert run("passwd", str(path), "alice", password="y") == 0
    assert PasswordFile(str(path)).grants("alice") == Grants("operator", True)
    assert run("grant", str(path), "alice", "--role", "viewer") == 0
    changed = PasswordFile(str(path))
    assert changed.grants("alice") == Grants("viewer", False)
    assert changed.verify("alice", b"y")
    assert run("grant", str(path), "alice", "--role", "king") == 2
    assert run("grant", str(path), "nobody") == 1
    path.write_text(f"carol:{HASH}:king\n")
    with pytest.raises(ConfigError, match="line 1: user 'carol': 'king' behind the hash"):
        PasswordFile(str(path))


def test_a_password_given_as_a_hash_ends_the_scram_credentials(tmp_path: Path) -> None:
    path, scram = tmp_path / "users", tmp_path / "scram"
    editor = UserEditor(path, scram)
    editor.add("alice", Secret("x"), Grants())
    assert len(ScramFile(str(scram))) == 1
    editor.change("alice", Secret(hashed=HASH), None)
    assert len(ScramFile(str(scram))) == 0
