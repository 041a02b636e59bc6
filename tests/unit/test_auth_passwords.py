"""Password files: what mosquitto_passwd writes is read as it is; faults are told by line."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import argon2
import pytest

from queuelake.broker.auth import passwords
from queuelake.broker.auth.passwords import PasswordFile, hash_password
from queuelake.errors import ConfigError

TOOL = shutil.which("mosquitto_passwd")


def password_file(folder: Path, *lines: str) -> PasswordFile:
    path = folder / "passwords"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return PasswordFile(str(path))


def sha512_entry(password: bytes, salt: bytes = b"123456789012") -> str:
    digest = hashlib.sha512(password + salt).digest()
    return f"$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


@pytest.mark.skipif(TOOL is None, reason="mosquitto_passwd is not installed")
@pytest.mark.parametrize(("kind", "mark"), [("sha512", "$6$"), ("sha512-pbkdf2", "$7$")])
def test_what_mosquitto_passwd_wrote_is_verified(tmp_path: Path, kind: str, mark: str) -> None:
    path = tmp_path / "passwords"
    assert TOOL is not None
    for create, user, password in (("-c", "ann", "s3cret pass"), ("", "bob", "pässwörd")):
        command = [TOOL, "-H", kind, *([create] if create else []), "-b", str(path), user, password]
        subprocess.run(command, check=True, capture_output=True)
    assert f"ann:{mark}" in path.read_text()
    file = PasswordFile(str(path))
    assert file.verify("ann", b"s3cret pass")
    assert file.verify("bob", "pässwörd".encode())
    assert not file.verify("ann", "pässwörd".encode())
    assert not file.verify("bob", b"")
    assert not file.verify("carl", b"s3cret pass")


def test_a_longer_salt_as_mosquitto_2_1_writes_it_is_read(tmp_path: Path) -> None:
    salt = bytes(range(64))
    digest = hashlib.pbkdf2_hmac("sha512", b"pw", salt, 1000)
    encoded = [base64.b64encode(one).decode() for one in (salt, digest)]
    file = password_file(tmp_path, f"ann:$7$1000${encoded[0]}${encoded[1]}")
    assert file.verify("ann", b"pw")
    assert not file.verify("ann", b"pW")


@pytest.mark.parametrize("padding", ["", "="])
def test_argon2id_is_read_with_and_without_padding(tmp_path: Path, padding: str) -> None:
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, hash_len=32)
    head, _, digest = hasher.hash("pw").rpartition("$")
    file = password_file(tmp_path, f"ann:{head}${digest}{padding}")
    assert file.verify("ann", b"pw")
    assert not file.verify("ann", b"other")


def test_a_new_entry_is_argon2id_and_salted(tmp_path: Path) -> None:
    first, second = hash_password("pw"), hash_password("pw")
    assert first.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert first != second
    assert password_file(tmp_path, f"ann:{first}").verify("ann", b"pw")


def test_every_malformed_line_is_reported_by_number_and_without_the_hash(tmp_path: Path) -> None:
    good = sha512_entry(b"pw")
    with pytest.raises(ConfigError) as caught:
        password_file(
            tmp_path,
            "# a comment",
            "",
            "plain:topsecret",
            "no colon",
            f"ann:{good}",
            f"ann:{good}",
            "short:$6$c2FsdA==$aGFzaA==",
            "many:$7$99999999999999999$c2FsdA==$aGFzaA==",
            "bad64:$7$10$!!$aGFzaA==",
            "argon:$argon2id$v=19$m=1$xx",
            "huge:$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
            f":{good}",
        )
    mistakes = caught.value.mistakes
    lines = [int(one.split("line ")[1].split(":")[0]) for one in mistakes]
    assert sorted(lines) == [3, 4, 6, 7, 8, 9, 10, 11, 12]
    assert "topsecret" not in str(caught.value)
    assert "already on line 5" in str(caught.value)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PasswordFile(str(tmp_path / "none"))


def test_reload_takes_new_users_and_keeps_the_old_ones_when_the_file_is_wrong(
    tmp_path: Path,
) -> None:
    file = password_file(tmp_path, f"ann:{sha512_entry(b'one')}")
    Path(file.path).write_text("ann:broken\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        file.reload()
    assert file.verify("ann", b"one")
    Path(file.path).write_text(f"bob:{sha512_entry(b'two')}\n", encoding="utf-8")
    file.reload()
    assert file.verify("bob", b"two")
    assert not file.verify("ann", b"one")


def test_an_unknown_user_is_hashed_like_a_known_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = password_file(tmp_path, f"ann:{sha512_entry(b'pw')}")
    calls: list[bytes] = []
    original = passwords.Sha512Hash.matches

    def counted(self: passwords.Sha512Hash, password: bytes) -> bool:
        calls.append(password)
        return original(self, password)

    monkeypatch.setattr(passwords.Sha512Hash, "matches", counted)
    assert not file.verify("nobody", b"pw")  # the stand-in's own password does not help
    assert not file.verify("ann", b"no")
    assert calls == [b"pw", b"no"]


def test_an_empty_file_refuses_everybody_at_the_usual_cost(tmp_path: Path) -> None:
    file = password_file(tmp_path)
    assert len(file) == 0
    assert not file.verify("ann", b"")
