"""Settings: three layers, and one line for each mistake: origin, key, value, what is allowed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.config_rules import filter_mistake, is_loopback
from queuelake.errors import ConfigError
from queuelake.settings import Settings, as_table, authentication_configured, load_settings
from tests.interop import certificates

ROOT = Path(__file__).resolve().parents[2]


def load(
    toml: str = "", tmp_path: Path | None = None, env: dict[str, str] | None = None, *sets: str
) -> Settings:
    path = None
    if tmp_path is not None:
        path = tmp_path / "q.toml"
        path.write_text(toml)
    return load_settings(None if path is None else str(path), env or {}, list(sets))


def mistakes(
    toml: str = "", tmp_path: Path | None = None, env: dict[str, str] | None = None, *sets: str
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(toml, tmp_path, env, *sets)
    assert str(caught.value) == "\n".join(caught.value.mistakes)
    assert all("\n" not in line for line in caught.value.mistakes)
    return caught.value.mistakes


def set_mistake(*sets: str) -> str:
    found = mistakes("", None, None, *sets)
    assert len(found) == 1, found
    return found[0]


def test_defaults_are_the_structs_own() -> None:
    settings = load_settings(None, {}, [])
    assert settings.listeners == Settings().listeners
    assert settings.data_dir.startswith("/")  # the home directory is expanded
    assert not authentication_configured(settings)


def test_the_later_layer_wins(tmp_path: Path) -> None:
    toml = "[listeners.mqtt]\nport = 1\n[listeners.ws]\nport = 2\n[http]\nport = 3"
    env = {"QUEUELAKE__LISTENERS__WS__PORT": "20", "QUEUELAKE__HTTP__PORT": "30", "HOME": "/"}
    settings = load(toml, tmp_path, env, "http.port=300")
    assert settings.listeners.mqtt.port == 1
    assert settings.listeners.ws.port == 20
    assert settings.http.port == 300


def test_a_partly_set_table_keeps_the_defaults_of_its_place(tmp_path: Path) -> None:
    settings = load("[listeners.ws]\nenabled = false", tmp_path)
    assert settings.listeners.ws.port == 8083
    assert not settings.listeners.ws.enabled


def test_environment_keys_are_case_insensitive_and_may_be_at_the_top() -> None:
    env = {"queuelake__mqtt__Receive_Max": "7", "QUEUELAKE__DATA_DIR": "/x"}
    settings = load("", None, env)
    assert settings.mqtt.receive_max == 7
    assert settings.data_dir == "/x"


def test_a_string_needs_no_quotes_and_is_not_read_as_a_number() -> None:
    settings = load("", None, {"QUEUELAKE__AUTH__JWT__SECRET": "0123"}, "data_dir=2026-01-01")
    assert settings.auth.jwt.secret == "0123"
    assert settings.data_dir == "2026-01-01"
    assert load("", None, None, 'data_dir="/a b"').data_dir == "/a b"


def test_lists_and_tables_are_toml_values() -> None:
    settings = load(
        "",
        None,
        None,
        'auth.platform_users=["a","b"]',
        'acl=[{permission="allow",topics=["eq $ECQ/${clientid}/#","a/+"]}]',
        "listeners.mqtt={port=5,enabled=false}",
    )
    assert settings.auth.platform_users == ["a", "b"]
    assert settings.acl[0].topics == ["eq $ECQ/${clientid}/#", "a/+"]
    assert (settings.listeners.mqtt.port, settings.listeners.mqtt.enabled) == (5, False)


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    toml = """
    data_dir = 5
    [listeners.mqtt]
    port = 99999
    [listener.ws]
    port = 1
    [log]
    format = "xml"
    [mqtt]
    connect_timeout_s = inf
    [auth]
    allow_anonymous = "yes"
    [[acl]]
    permission = "permit"
    topics = ["a/#/b"]
    [[acl]]
    topics = [5]
    """
    env = {"QUEUELAKE__MQTT__QOS_MAX": "7"}
    where = f"file {tmp_path / 'q.toml'}: "
    keys = ("connections_max", "connections_per_ip_max", "connect_rate_per_s_max")
    near = " or ".join(f"limits.{key}" for key in keys) + "?"
    assert mistakes(toml, tmp_path, env, "limits.conections_max=1", "x") == [
        where + "data_dir = 5: allowed: a string",
        where + "listeners.mqtt.port = 99999: allowed: an integer from 0 to 65535",
        where + "listener = (a table): unknown key; did you mean listeners or cluster?",
        where + 'log.format = "xml": allowed: "console", "json"',
        where + "mqtt.connect_timeout_s = inf: allowed: a number greater than 0",
        where + 'auth.allow_anonymous = "yes": allowed: true, false',
        where + 'acl[0].permission = "permit": allowed: "allow", "deny"',
        where + "acl[1].topics = [5]: allowed: an array, each element a string",
        where + 'acl[1].permission is missing; allowed: "allow", "deny"',
        "environment QUEUELAKE__MQTT__QOS_MAX: mqtt.qos_max = 7: allowed: an integer from 0 to 2",
        '--set: limits.conections_max = "1": unknown key; did you mean ' + near,
        "--set: 'x' has no value; write --set section.key=value",
        where + 'acl[0].topics holds "a/#/b": # may only be the whole last level',
    ]


def test_a_key_under_a_value_is_refused() -> None:
    assert set_mistake("acl.permission=5") == (
        "--set: acl.permission = \"5\": 'acl' holds an array of tables, no keys"
    )
    assert "no keys" in set_mistake("data_dir.x=5")
    assert "known in [http]: enabled, bind, port" in set_mistake("http.zzzz=5")
    assert "allowed: a table with" in set_mistake("http=5")
    assert "allowed: an array of tables" in set_mistake("acl=5")


def test_no_mistake_shows_a_secret(tmp_path: Path) -> None:
    toml = '[auth]\njwt = "hunter2"\npasword = "hunter2"\n[auth.jtw]\nsecret = "hunter2"'
    env = {"QUEUELAKE__AUTH__JWT__SECRETT": "hunter2", "QUEUELAKE__AUTH__PASSWORD": "hunter2"}
    found = mistakes(toml, tmp_path, env, "auth.jwt.secret=['hunter2'", "auth.jwt=hunter2")
    assert len(found) == 6
    assert "hunter2" not in "\n".join(found)
    assert "hunter2" not in set_mistake("auth.jwt.secret.x=hunter2")


def test_a_file_that_is_missing_or_no_toml_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(str(tmp_path / "none"), {}, [])
    assert "is not TOML" in mistakes("a = ", tmp_path)[0]
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings(str(tmp_path / "b.toml"), {}, [])


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "", "10.0.0.1", "example.org"])
@pytest.mark.parametrize("listener", ["mqtt", "ws"])
def test_a_wide_listener_without_authentication_is_refused(listener: str, bind: str) -> None:
    key = f"listeners.{listener}.bind"
    assert "no authentication is configured" in set_mistake(f"{key}={bind}")
    load("", None, None, f"{key}={bind}", "auth.jwt.secret=s")
    load("", None, None, f"{key}={bind}", "auth.allow_anonymous=true")
    load("", None, None, f"{key}={bind}", f"listeners.{listener}.enabled=false")


def test_loopback_and_the_keyed_http_port_need_no_authentication() -> None:
    load("", None, None, "listeners.mqtt.bind=::1", "http.bind=0.0.0.0")
    # Off without a certificate, so its address does not matter.
    load("", None, None, "listeners.mqtts.bind=0.0.0.0")
    assert [is_loopback(one) for one in ("127.9.9.9", "localhost", "::1", "host")] == [
        *(True, True, True),
        False,
    ]


def test_a_faulty_key_is_not_reported_twice() -> None:
    found = mistakes("", None, None, "listeners.mqtt.bind=0.0.0.0", "auth.password_file=[1]")
    assert len(found) == 1
    assert "auth.password_file" in found[0]


def test_tls_files_must_fit_together(tmp_path: Path) -> None:
    assert "needs tls.certificate" in set_mistake(f"tls.key={__file__}")
    assert "needs tls.key" in set_mistake(f"tls.certificate={__file__}")
    missing = f"tls.certificate={tmp_path}/none"
    assert "No such file" in set_mistake(missing, f"tls.key={__file__}")
    assert "Is a directory" in set_mistake(f"tls.certificate={tmp_path}", f"tls.key={__file__}")
    pair = (f"tls.certificate={__file__}", f"tls.key={__file__}")
    assert "cannot be used with tls.key" in set_mistake(*pair)
    assert "needs tls.client_ca" in set_mistake("tls.client_certificate=required")
    assert "no usable certificate" in set_mistake(f"tls.client_ca={__file__}")


def test_a_certificate_and_its_own_key_are_accepted_and_open_the_tls_listeners(
    tmp_path: Path,
) -> None:
    authority = certificates.Authority(tmp_path)
    first, second = authority.server(), authority.server("other")
    certificate = f"tls.certificate={first.certificate}"
    load("", None, None, certificate, f"tls.key={first.key}")
    assert "cannot be used" in set_mistake(certificate, f"tls.key={second.key}")
    wide = set_mistake(certificate, f"tls.key={first.key}", "listeners.mqtts.bind=0.0.0.0")
    assert wide.startswith('--set: listeners.mqtts.bind = "0.0.0.0"')


def test_required_client_certificates_are_authentication_for_the_tls_listeners_only(
    tmp_path: Path,
) -> None:
    authority = certificates.Authority(tmp_path)
    server = authority.server()
    sets = [
        f"tls.certificate={server.certificate}",
        f"tls.key={server.key}",
        f"tls.client_ca={authority.certificate}",
        "listeners.mqtts.bind=0.0.0.0",
    ]
    load("", None, None, *sets, "tls.client_certificate=required")
    assert "listeners.mqtts" in set_mistake(*sets, "tls.client_certificate=optional")
    required = [*sets, "tls.client_certificate=required"]
    assert "listeners.mqtts" in set_mistake(*required, "tls.username_from=none")
    assert "listeners.mqtt.bind" in set_mistake(*required, "listeners.mqtt.bind=0.0.0.0")


def test_the_other_rules() -> None:
    rule = '[{permission="allow",topics=["a"],%s}]'
    assert "RE2" in set_mistake("acl=" + rule % 'clientid_re="("')
    assert "RE2" in set_mistake("acl=" + rule % 'username_re="(?=a)"')
    assert "host bits" in set_mistake("acl=" + rule % 'ip="10.0.0.1/8"')
    load("", None, None, "acl=" + rule % 'ip="10.0.0.0/8"')
    assert "at least one" in set_mistake('acl=[{permission="allow",topics=[]}]')
    assert 'holds "eq a+"' in set_mistake('acl=[{permission="allow",topics=["eq a+"]}]')
    assert "names nobody" in set_mistake("bans=[{}]")
    assert "bans[0].ip" in set_mistake('bans=[{ip="x"}]')
    assert 'holds "none"' in set_mistake('auth.jwt.algorithms=["HS256","none"]')
    assert "at least one" in set_mistake("auth.jwt.algorithms=[]")
    assert "map_size_bytes_max = 2000000" in set_mistake("storage.map_size_bytes_max=2000000")
    assert "already used by listeners.mqtt" in set_mistake("listeners.ws.port=1883")
    assert "at most 107" in set_mistake("listeners.unix.path=/" + "x" * 107)
    assert "octal" in set_mistake("listeners.unix.mode=rw")
    assert "No such file" in set_mistake("auth.password_file=/none/users")
    assert 'data_dir = ""' in set_mistake("data_dir=")


@given(st.text(max_size=20))
def test_any_text_for_any_key_is_a_value_or_a_line(text: str) -> None:
    for key in ("mqtt.receive_max", "log.level", "auth.platform_users", "acl", "http", text):
        try:
            load_settings(None, {"QUEUELAKE__" + key.replace(".", "__"): text}, [f"{key}={text}"])
        except ConfigError as error:
            assert error.mistakes


@given(st.text("a/+#$", max_size=8))
def test_filter_mistakes_follow_the_standard(text: str) -> None:
    levels = text.split("/")
    valid = bool(text) and all(
        level in ("+",) or not set(level) & set("+#") for level in levels[:-1]
    )
    last = levels[-1]
    valid = valid and (last in ("+", "#") or not set(last) & set("+#"))
    assert (filter_mistake(text) == "") == valid


def test_the_example_file_holds_every_key_with_its_default(tmp_path: Path) -> None:
    example = (ROOT / "deploy" / "queuelake.example.toml").read_text()
    assert load(example, tmp_path) == load_settings(None, {}, [])
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    keys = re.compile(r"^(\w+ = |\[)")
    full = "\n".join(line for line in lines if keys.match(line))
    values = tomllib.loads(full)
    assert values.pop("acl")[0]["permission"] == "allow"
    assert values.pop("bans")
    # Three-valued: the default is to be absent, which TOML cannot write.
    assert values["auth"].pop("allow_anonymous") is False
    defaults = as_table(Settings())
    assert isinstance(defaults["auth"], dict)
    del defaults["acl"], defaults["bans"], defaults["auth"]["allow_anonymous"]
    assert values == defaults
    load(full, tmp_path)


def test_the_documentation_names_every_key() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    missing = [key for key in keys_of(Settings()) if f"| `{key}` |" not in text]
    assert missing == []


def keys_of(section: msgspec.Struct) -> list[str]:
    """The last names of all keys below a section, with the names of lists of tables themselves."""
    keys: list[str] = []
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, msgspec.Struct):
            keys += keys_of(value)
        elif not isinstance(value, dict):  # named by people
            keys.append(name)
    return keys
