"""SCRAM-SHA-256: scramp's client against our exchange, and everything that must fail."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from queuelake.broker.auth.scram import ScramExchange, ScramFile, parse_credentials, scram_line
from queuelake.errors import ConfigError, NotAuthorizedError, RefusedError


def scram_file(folder: Path, *lines: str) -> ScramFile:
    path = folder / "scram"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return ScramFile(str(path))


def log_in(file: ScramFile, username: str, password: str) -> ScramExchange:
    client = ScramClient(["SCRAM-SHA-256"], username, password)
    exchange = ScramExchange(file)
    client.set_server_first(exchange.step(client.get_client_first().encode()).decode())
    assert not exchange.done
    client.set_server_final(exchange.step(client.get_client_final().encode()).decode())
    return exchange


def test_the_right_password_logs_in_and_the_client_trusts_the_server(tmp_path: Path) -> None:
    file = scram_file(tmp_path, scram_line("ann", "secret"), scram_line("bob,=x", "другой"))
    exchange = log_in(file, "ann", "secret")
    assert exchange.done
    assert exchange.username == "ann"
    assert log_in(file, "bob,=x", "другой").username == "bob,=x"


def test_a_line_computed_by_the_formulas_of_rfc_5802_is_accepted(tmp_path: Path) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")  # of the example in RFC 7677
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = base64.b64encode(hashlib.sha256(client_key).digest()).decode()
    server_key = base64.b64encode(hmac.digest(salted, b"Server Key", "sha256")).decode()
    salt_text = base64.b64encode(salt).decode()
    line = f"user:SCRAM-SHA-256$4096:{salt_text}${stored_key}:{server_key}"
    assert log_in(scram_file(tmp_path, line), "user", "pencil").done


def test_a_wrong_password_fails_at_the_proof(tmp_path: Path) -> None:
    file = scram_file(tmp_path, scram_line("ann", "secret"))
    with pytest.raises(NotAuthorizedError):
        log_in(file, "ann", "Secret")


def test_unknown_users_look_like_known_ones_until_the_proof(tmp_path: Path) -> None:
    file = scram_file(tmp_path, scram_line("ann", "secret"))

    def server_first(name: str, of: ScramFile) -> tuple[str, str]:
        answer = ScramExchange(of).step(f"n,,n={name},r=abc".encode()).decode()
        fields = dict(part.split("=", 1) for part in answer.split(","))
        return fields["s"], fields["i"]

    known, unknown = server_first("ann", file), server_first("nobody", file)
    assert known[1] == unknown[1]
    assert len(base64.b64decode(known[0])) == len(base64.b64decode(unknown[0]))
    assert unknown == server_first("nobody", file)
    assert unknown != server_first("nobody2", file)
    again = ScramFile(file.path)
    assert unknown == server_first("nobody", again), "a restart would tell unknown users apart"
    Path(file.path).write_text(scram_line("new", "x") + "\n", encoding="utf-8")
    file.reload()
    assert unknown[0] == server_first("nobody", file)[0]
    with pytest.raises(NotAuthorizedError):
        log_in(file, "nobody", "secret")


def test_nothing_follows_a_failed_or_finished_exchange(tmp_path: Path) -> None:
    file = scram_file(tmp_path, scram_line("ann", "secret"))
    exchange = ScramExchange(file)
    with pytest.raises(NotAuthorizedError):
        exchange.step(b"garbage")
    with pytest.raises(NotAuthorizedError):
        exchange.step(b"n,,n=ann,r=abc")
    finished = log_in(file, "ann", "secret")
    with pytest.raises(NotAuthorizedError):
        finished.step(b"n,,n=ann,r=abc")
    with pytest.raises(NotAuthorizedError):
        ScramExchange(file).step(b"n,,n=ann,r=" + b"a" * 5000)


def test_a_proof_for_another_nonce_is_refused(tmp_path: Path) -> None:
    file = scram_file(tmp_path, scram_line("ann", "secret"))
    client = ScramClient(["SCRAM-SHA-256"], "ann", "secret")
    first = client.get_client_first().encode()
    client.set_server_first(ScramExchange(file).step(first).decode())
    final = client.get_client_final().encode()
    replayed = ScramExchange(file)
    replayed.step(first)
    with pytest.raises(NotAuthorizedError):
        replayed.step(final)
    assert not replayed.done


def test_a_client_does_not_accept_a_server_without_the_key(tmp_path: Path) -> None:
    line = scram_line("ann", "secret")
    head, _, _ = line.rpartition(":")
    file = scram_file(tmp_path, f"{head}:{base64.b64encode(bytes(32)).decode()}")
    with pytest.raises(ScramException):
        log_in(file, "ann", "secret")


def test_malformed_lines_are_reported_by_number(tmp_path: Path) -> None:
    good = scram_line("ann", "secret")
    few = good.replace("16384", "100").replace("ann", "few")
    with pytest.raises(ConfigError) as caught:
        scram_file(tmp_path, good, "bob:md5abc", few, "eve:SCRAM-SHA-256$4096:!$x:y", "nothing")
    assert [one.split("line ")[1][0] for one in caught.value.mistakes] == ["5", "2", "3", "4"]
    with pytest.raises(ValueError, match="StoredKey"):
        parse_credentials("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$YQ==:YQ==")


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "#a"])
def test_a_name_that_cannot_stand_in_the_file_is_refused(name: str) -> None:
    with pytest.raises(RefusedError):
        scram_line(name, "secret")


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> ScramFile:
    return scram_file(tmp_path_factory.mktemp("scram"), scram_line("ann", "secret"))


@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(ann: ScramFile, first: bytes, second: bytes) -> None:
    exchange = ScramExchange(ann)
    for data in (first, second):
        try:
            exchange.step(data)
        except NotAuthorizedError:
            pass
    assert not exchange.done


@given(final=st.text(alphabet="cnryp=,a1+/\0é", max_size=60))
def test_garbage_after_a_good_start_is_refused(ann: ScramFile, final: str) -> None:
    exchange = ScramExchange(ann)
    exchange.step(b"n,,n=ann,r=abc")
    with pytest.raises(NotAuthorizedError):
        exchange.step(final.encode())
