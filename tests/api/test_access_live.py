"""Users and rules over REST: in force at once, kept over a restart, and never with a secret."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from queuelake.apikey import add_key
from queuelake.broker.auth.passwords import PasswordFile
from queuelake.broker.auth.scram import ScramFile
from tests.api.live import Answer, basic, fetch, wait_until
from tests.api.queue_rest import Rest
from tests.harness.broker import BrokerProcess
from tests.harness.wire import Wire

NOT_AUTHORIZED = 0x87
ALLOW_ALL = {"permission": "allow", "topics": ["#"]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("access")
    files = {"auth.password_file": directory / "users.txt", "auth.scram_file": directory / "scram"}
    for path in files.values():
        path.touch()
    settings: dict[str, Any] = {key: str(path) for key, path in files.items()}
    config = '[[acl]]\npermission = "allow"\ntopics = ["configured/#"]\n'
    broker = BrokerProcess(directory, settings, config=config)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def api(served: BrokerProcess) -> Iterator[Api]:
    api = Api(served)
    yield api
    for user in api.get("/users").json["users"]:
        api.send("DELETE", f"/users/{user['name']}")
    api.put_rules([], "*")


class Api(Rest):
    def get(self, path: str) -> Answer:
        return self.fetch(f"/api/v1{path}")

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        return self.fetch(f"/api/v1{path}", method=method, body=data, headers=headers)

    def put_rules(self, rules: list[Any], version: str) -> Answer:
        return self.send("PUT", "/acl", {"rules": rules}, **{"If-Match": version})

    def log_in(self, name: str, password: str) -> Wire:
        wire = self.broker.client()
        wire.connect(name, username=name, password=password.encode())
        return wire


# Users


def test_a_user_is_made_and_may_connect_at_once(api: Api) -> None:
    made = api.send("PUT", "/users/ann", {"password": "first", "role": "operator"})
    told = {"name": "ann", "role": "operator", "platform": False, "configured_platform": False}
    assert (made.status, made.json) == (201, told)
    api.log_in("ann", "first").close()
    again = api.send("PUT", "/users/ann", {"password": "second"})
    assert (again.status, again.json["code"]) == (409, "CONFLICT")
    assert api.get("/users/ann").json == told
    assert api.get("/users").json == {"users": [told], "enforced": True, "next": None}


def test_a_password_is_changed_and_the_rest_stays(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "first", "role": "viewer", "platform": True})
    changed = api.send("PATCH", "/users/ann", {"password": "second"})
    assert (changed.json["role"], changed.json["platform"]) == ("viewer", True)
    users = PasswordFile(str(api.broker.directory / "users.txt"))
    assert users.verify("ann", b"second")
    assert len(ScramFile(str(api.broker.directory / "scram"))) == 1
    assert api.send("PATCH", "/users/ann", {"role": "none"}).json["role"] == "none"
    assert api.send("PATCH", "/users/nobody", {"role": "none"}).status == 404


def test_a_deleted_user_is_disconnected_and_stays_out(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "first"})
    client = api.log_in("ann", "first")
    assert api.send("DELETE", "/users/ann").status == 204
    client.expect_disconnect(NOT_AUTHORIZED)
    assert api.get("/users/ann").status == 404
    assert api.send("DELETE", "/users/ann").status == 404
    assert (api.broker.directory / "scram").read_text() == ""


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("ann", {}, "name a password, or the hash of one"),
        ("ann", {"password": "x", "password_hash": "$7$1$a$b"}, "and not both"),
        ("ann", {"password_hash": "plain"}, "must be hashed as"),
        ("ann", {"password": "x", "role": "king"}, "role"),
        ("ann", {"password": "x", "rolle": "admin"}, "rolle"),
        ("a%3Ab", {"password": "x"}, "must not hold ':'"),
        ("ann", [], "NewUser"),
    ],
)
def test_a_bad_user_is_refused(api: Api, name: str, body: Any, words: str) -> None:
    refused = api.send("PUT", f"/users/{name}", body)
    assert (refused.status, words in refused.json["message"]) == (400, True), refused.json
    assert api.get("/users").json["users"] == []


def test_users_come_page_by_page(api: Api) -> None:
    hashed = "$7$101$c2FsdA==$" + "A" * 86 + "=="
    for name in ("c", "a", "b"):
        assert api.send("PUT", f"/users/{name}", {"password_hash": hashed}).status == 201
    first = api.get("/users?limit=2").json
    second = api.get(f"/users?limit=2&cursor={first['next']}").json
    assert [user["name"] for page in (first, second) for user in page["users"]] == ["a", "b", "c"]
    assert second["next"] is None


def test_a_file_which_somebody_broke_is_left_alone(api: Api) -> None:
    path = api.broker.directory / "users.txt"
    path.write_text("ann plain\n")
    refused = api.send("PUT", "/users/bob", {"password": "x"})
    assert (refused.status, "line 1: must be 'user:hash'" in refused.json["message"]) == (400, True)
    assert path.read_text() == "ann plain\n"
    path.write_text("")


# Rules


def test_rules_are_in_force_for_clients_which_are_connected(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "x"})
    client = api.log_in("ann", "x")
    assert client.publish("plain/topic", b"", qos=1).reason_code == NOT_AUTHORIZED
    assert client.publish("configured/topic", b"", qos=1).reason_code < 0x80
    deny = {"permission": "deny", "topics": ["configured/#"], "username": "ann"}
    assert api.put_rules([deny, ALLOW_ALL], "*").status == 200
    assert client.publish("plain/topic", b"", qos=1).reason_code < 0x80
    assert client.publish("configured/topic", b"", qos=1).reason_code == NOT_AUTHORIZED
    client.close()
    found = api.get("/acl").json
    assert [rule["permission"] for rule in found["rules"]] == ["deny", "allow"]
    assert [rule["topics"] for rule in found["configured"]] == [["configured/#"]]
    assert found["shipped"][0]["topics"] == ["$SYS/#"]


def test_the_platform_flag_is_in_force_at_once(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "x"})
    api.put_rules([ALLOW_ALL], "*")
    client = api.log_in("ann", "x")
    assert client.publish("$SDV-FANOUT/x", b"", qos=1).reason_code == NOT_AUTHORIZED
    api.send("PATCH", "/users/ann", {"platform": True})
    assert client.publish("$SDV-FANOUT/x", b"", qos=1).reason_code != NOT_AUTHORIZED
    client.close()


def test_two_editors_do_not_overwrite_each_other(api: Api) -> None:
    read = api.get("/acl")
    assert read.headers["etag"] == f'"{read.json["version"]}"'
    first = api.put_rules([ALLOW_ALL], read.headers["etag"])
    assert first.status == 200
    second = api.put_rules([], read.headers["etag"])
    assert (second.status, second.json["code"]) == (412, "PRECONDITION_FAILED")
    assert api.send("PUT", "/acl", {"rules": []}).status == 428
    same = api.put_rules(api.get("/acl").json["rules"], first.headers["etag"])
    assert (same.status, same.headers["etag"]) == (200, first.headers["etag"])
    assert api.put_rules([], first.headers["etag"]).status == 200


def test_one_wrong_rule_changes_nothing_and_each_mistake_is_said(api: Api) -> None:
    before = api.get("/acl").json["version"]
    wrong = [
        ALLOW_ALL,
        {"permission": "perhaps", "topics": ["#"]},
        {"permission": "deny", "topics": ["a/#/b"], "clientid_re": "("},
        {"permission": "deny", "topics": [], "colour": "red"},
    ]
    refused = api.put_rules(wrong, "*")
    assert refused.status == 400
    for words in ("acl[1].permission", "acl[2].topics", "acl[2].clientid_re", "acl[3].colour"):
        assert words in refused.json["message"]
    assert api.get("/acl").json["version"] == before
    for body in ([], {"rules": 1}, {"rules": [], "more": 1}):
        answer = api.send("PUT", "/acl", body, **{"If-Match": "*"})
        assert (answer.status, '{"rules": [...]}' in answer.json["message"]) == (400, True)


def test_rules_and_users_outlive_a_restart(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "x"})
    version = api.put_rules([{**ALLOW_ALL, "username": 'a"n\\n'}], "*").json["version"]
    path = api.broker.data_dir / "acl.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    api.broker.restart()
    assert api.get("/acl").json["version"] == version
    assert [user["name"] for user in api.get("/users").json["users"]] == ["ann"]


def test_files_which_were_edited_are_read_on_sighup(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "x"})
    client = api.log_in("ann", "x")
    (api.broker.data_dir / "acl.toml").write_text(
        '[[acl]]\npermission = "allow"\nusername = "ann"\ntopics = ["edited/#"]\n'
    )
    os.kill(api.broker.pid, signal.SIGHUP)
    wait_until(lambda: client.publish("edited/x", b"", qos=1).reason_code < 0x80)
    kept = api.get("/acl").json
    (api.broker.data_dir / "acl.toml").write_text("[[acl]]\npermission = 1\n[other]\n")
    (api.broker.directory / "users.txt").write_text("")
    (api.broker.directory / "scram").write_text("")
    os.kill(api.broker.pid, signal.SIGHUP)
    client.expect_disconnect(NOT_AUTHORIZED)
    assert api.get("/acl").json == kept  # what is wrong is logged, and changes nothing
    assert "holds 'other'; allowed: [[acl]]" in api.broker.stderr_tail()


# Who may, and who did


def test_only_an_admin_may_see_or_change_them(api: Api) -> None:
    key = add_key(api.broker.data_dir, "op", "operator")
    for method, path in (("GET", "/users"), ("PUT", "/users/x"), ("GET", "/acl"), ("PUT", "/acl")):
        port = api.broker.http_port
        answer = fetch(port, f"/api/v1{path}", method=method, authorization=basic(key))
        assert answer.status == 403


def test_changes_are_audited_without_a_secret(api: Api) -> None:
    api.send("PUT", "/users/ann", {"password": "topsecret"})
    api.send("PATCH", "/users/ann", {"password": "topsecret2", "role": "viewer"})
    api.put_rules([ALLOW_ALL], "*")
    entries = api.get("/audit?limit=3").json["entries"]
    assert [entry["operation"] for entry in entries] == ["acl_replace", "user_change", "user_add"]
    assert entries[0]["before"]["rules"] == []
    assert entries[0]["after"]["rules"][0]["topics"] == ["#"]
    assert (entries[1]["before"]["role"], entries[1]["after"]["role"]) == ("none", "viewer")
    assert entries[1]["target"] == "ann"
    text = (api.broker.data_dir / "audit.jsonl").read_text()
    assert "topsecret" not in text
    assert "$argon2id$v=" not in text
