"""Settings of message queues: what people may write, what becomes of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from queuelake.config_types import changes_between
from queuelake.control_mq import MqConfigInfo, MqInfo
from queuelake.errors import ConfigError
from queuelake.mq_rules import parse_limit
from queuelake.mq_settings import (
    AutoCreate,
    AutoCreateLastValue,
    AutoCreateRegular,
    BadMqSettingsError,
    MqConfig,
    MqSettings,
    auto_created,
    config_with,
    read_config,
    read_new,
    read_update,
    show,
    show_config,
)
from queuelake.settings import Settings, load_settings

DURATION = 'allowed: a duration such as "250ms", "30s", "1.5m", "168h" or "7d"'
CONFIG = MqConfig()
REGULAR = read_new({"name": "r", "topic_filter": "r/#", "is_lastvalue": False})
LAST_VALUE = read_new({"name": "l", "topic_filter": "l/#"})


def new_mistakes(body: object) -> list[str]:
    with pytest.raises(BadMqSettingsError) as caught:
        read_new(body)
    assert (caught.value.http_status, caught.value.code) == (400, "BAD_REQUEST")
    return caught.value.mistakes


def update_mistakes(old: MqSettings, body: object) -> list[str]:
    with pytest.raises(BadMqSettingsError) as caught:
        read_update(old, body)
    return caught.value.mistakes


def config_mistakes(body: object, old: MqConfig = CONFIG) -> list[str]:
    with pytest.raises(BadMqSettingsError) as caught:
        read_config(old, body)
    return caught.value.mistakes


# A new queue


def test_a_body_with_a_filter_alone_is_a_last_value_queue_with_the_defaults() -> None:
    assert read_new({"topic_filter": "t1/#"}) == MqSettings("/t1/#", "t1/#")
    settings = MqSettings("/t1/#", "t1/#")
    assert (settings.is_lastvalue, settings.key_expression) == (True, "message.from")
    assert not settings.is_limited


def test_a_regular_queue_has_no_key() -> None:
    assert MqSettings("r", "r/#", is_lastvalue=False, key_expression="") == REGULAR


def test_every_key_can_be_said() -> None:
    body = {
        "name": "Orders-2.b_c",
        "topic_filter": "orders/+/x",
        "key_expression": "message.topic",
        "data_retention_period": "1.5h",
        "dispatch_strategy": "sticky_key",
        "limits": {"max_shard_message_count": 1000, "max_shard_message_bytes": "100MB"},
        "consumer_max_inactive": 0,
        "ping_interval": 2500,
        "redispatch_interval": "1s",
        "busy_session_retry_interval": "20ms",
        "local_max_inflight": 7,
        "stream_max_buffer_size": 8,
        "stream_max_unacked": 9,
        "consumer_persistence_interval": "1m",
        "ack_timeout": 30_000,
        "max_redeliveries": 4,
    }
    expected = MqSettings(
        "Orders-2.b_c",
        "orders/+/x",
        True,
        "message.topic",
        *(5_400_000, "sticky_key", 1000, 104_857_600),
        *(0, 2500, 1000, 20, 7, 8, 9, 60_000, 30_000, 4),
    )
    assert read_new(body) == expected
    assert read_update(LAST_VALUE, {**body, "name": "l", "topic_filter": "l/#"}) == (
        msgspec.structs.replace(expected, name="l", topic_filter="l/#")
    )
    assert read_update(expected, {}) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "allowed: letters"),
        ("/t1", "allowed: letters"),
        ("-a", "allowed: letters"),
        ("a/b", "allowed: letters"),
        ("a\n", "allowed: letters"),
        ("ü", "allowed: letters"),
        ("dlq", "is reserved"),
        ("x" * 401, "the limit is 400"),
        (5, "allowed: a string"),
    ],
)
def test_the_alphabet_of_names_is_small(name: object, reason: str) -> None:
    [mistake] = new_mistakes({"name": name, "topic_filter": "t"})
    assert mistake.startswith("name = ")
    assert reason in mistake


@pytest.mark.parametrize(
    "topic_filter", ["", "a/#/b", "a+", "a\0", "x" * 65_536, "$q/a", "$queue/a", "$share/g/a", 1]
)
def test_a_filter_is_one_of_topics(topic_filter: object) -> None:
    [mistake] = new_mistakes({"topic_filter": topic_filter})
    assert mistake.startswith("topic_filter = ")


@pytest.mark.parametrize("topic_filter", ["#", "+", "/", "$SYS/#", "a//b", "ü/+", "q/a"])
def test_any_filter_of_topics_will_do(topic_filter: str) -> None:
    assert read_new({"topic_filter": topic_filter}).name == f"/{topic_filter}"


def test_every_mistake_has_its_entry() -> None:
    body = {
        "name": "/x",
        "is_lastvalue": "no",
        "dispatch_strategy": "fifo",
        "data_retention_period": 0,
        "ping_interval": -5,
        "local_max_inflight": True,
        "limits": {"max_shard_message_count": 0, "max_shard_message_bytes": "lots", "max": 1},
        "dispatch_stratgy": "random",
    }
    number = "an integer from 1 to 1000000000000000"
    assert new_mistakes(body) == [
        'is_lastvalue = "no": allowed: true, false',
        'topic_filter is missing; allowed: a topic filter such as "t1/#"',
        "name = \"/x\": allowed: letters, digits, '-', '.' and '_', the first a letter or a digit",
        'dispatch_strategy = "fifo": allowed: '
        '"least_inflight", "random", "round_robin", "sticky_key"',
        f"data_retention_period = 0: {DURATION}, greater than 0; at most 36500d",
        f"ping_interval = -5: {DURATION}, greater than 0; at most 36500d",
        f"local_max_inflight = true: allowed: {number}",
        f'limits.max_shard_message_count = 0: allowed: {number} or "infinity"',
        "limits.max = 1: unknown key; known in [limits]: max_shard_message_count, "
        "max_shard_message_bytes",
        'dispatch_stratgy = "random": unknown key; did you mean dispatch_strategy '
        "or redispatch_interval?",
        'limits.max_shard_message_bytes = "lots": allowed: bytes from 1 to 1000000000000000, '
        'a size such as "100MB", or "infinity"',
    ]


@pytest.mark.parametrize("body", [None, [], "x", 1, True])
def test_a_body_is_an_object(body: object) -> None:
    assert new_mistakes(body) == ["the body is a JSON object; this is another value"]


def test_a_wrong_expression_is_refused_with_its_place() -> None:
    [mistake] = new_mistakes({"topic_filter": "t", "key_expression": "concat([message.from,"})
    assert mistake.startswith('key_expression = "concat([message.from,": column 8: ')
    [mistake] = new_mistakes({"topic_filter": "t", "key_expression": ""})
    assert mistake.startswith('key_expression = "": ')


def test_a_regular_queue_takes_no_expression() -> None:
    body = {"topic_filter": "t", "is_lastvalue": False, "key_expression": "message.from"}
    [mistake] = new_mistakes(body)
    assert mistake.startswith('key_expression = "message.from": needs is_lastvalue = true')
    assert update_mistakes(REGULAR, {"key_expression": "message.from"}) == [mistake]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("1B", 1), ("100MB", 104_857_600), ("1kb", 1024), ("1KiB", 1024), ("1.5 GB", 3 << 29)),
        *(("2TB", 2 << 40), ("infinity", 0)),
    ],
)
def test_sizes_count_in_steps_of_1024(text: str, size: int) -> None:
    assert parse_limit(text) == size


@pytest.mark.parametrize("text", ["", "5", "MB", "-1MB", "0B", "0.3B", "9999TB", "1" * 70, "1MBit"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_limit(text)


# A queue which is changed


def test_what_is_not_said_stays() -> None:
    limited = read_new({"topic_filter": "t", "limits": {"max_shard_message_count": 5}})
    changed = read_update(limited, {"dispatch_strategy": "least_inflight"})
    assert changed == msgspec.structs.replace(limited, dispatch_strategy="least_inflight")
    both = read_update(changed, {"limits": {"max_shard_message_bytes": "1KB"}})
    assert (both.count_max, both.bytes_max) == (5, 1024)
    assert not read_update(
        both,
        {"limits": {"max_shard_message_count": "infinity", "max_shard_message_bytes": "infinity"}},
    ).is_limited


def test_what_a_queue_is_it_stays() -> None:
    said = "LastValue flag is not allowed to be updated"
    assert update_mistakes(REGULAR, {"is_lastvalue": True}) == [said]
    assert update_mistakes(LAST_VALUE, {"is_lastvalue": False}) == [said]
    assert update_mistakes(LAST_VALUE, {"is_lastvalue": 1}) == [said]
    same = {"is_lastvalue": False, "name": "r", "topic_filter": "r/#"}
    assert read_update(REGULAR, same) == REGULAR
    assert update_mistakes(REGULAR, {"name": "s", "topic_filter": "s"}) == [
        'name = "s": allowed: "r", which the queue has and keeps',
        'topic_filter = "s": allowed: "r/#", which the queue has and keeps',
    ]


def test_a_regular_queue_stays_limited_or_unlimited() -> None:
    said = "Regular queues cannot be updated from limited to unlimited and vice versa"
    count = {"limits": {"max_shard_message_count": 5}}
    assert update_mistakes(REGULAR, count) == [said]
    limited = read_new({"topic_filter": "t", "is_lastvalue": False, **count})
    assert update_mistakes(limited, {"limits": {"max_shard_message_count": "infinity"}}) == [said]
    other = {"max_shard_message_count": "infinity", "max_shard_message_bytes": 9}
    changed = read_update(limited, {"limits": other})
    assert (changed.count_max, changed.bytes_max) == (0, 9)
    assert read_update(LAST_VALUE, count).count_max == 5


# All queues


def test_the_calls_of_users_change_the_configuration() -> None:
    config = read_config(
        CONFIG,
        {
            "gc_interval": "2h",
            "regular_queue_retention_period": 1000,
            "find_queue_retry_interval": "10s",
        },
    )
    assert (config.gc_interval_ms, config.regular_queue_retention_ms) == (7_200_000, 1000)
    assert config.find_queue_retry_interval_ms == 10_000
    assert config.max_queue_count == 100
    assert read_config(CONFIG, {}) == CONFIG


def test_every_mistake_in_the_configuration_has_its_entry() -> None:
    assert config_mistakes(
        {
            "enable": "yes",
            "gc_interval": 0,
            "max_queue_count": -1,
            "n_shards": 2,
            "auto_create": {"lastvalue": {"key_expression": "nothing("}, "other": True},
            "quota": {"threshold_percentage": 101},
            "gc": 1,
        }
    )[:7] == [
        'enable = "yes": allowed: true, false or "auto"',
        f"gc_interval = 0: {DURATION}, greater than 0; at most 36500d",
        "max_queue_count = -1: allowed: an integer from 0 to 1000000000000000",
        "n_shards = 2: allowed: an integer from 1 to 1",
        "auto_create.other = (a table): unknown key; known in [auto_create]: regular, lastvalue",
        "quota.threshold_percentage = 101: allowed: an integer from 1 to 100",
        "gc = 1: unknown key; known at the top: enable, gc_interval, "
        "regular_queue_retention_period, max_queue_count, find_queue_retry_interval, n_shards, "
        "allow_v3, strict_publish, auto_create, quota, storage",
    ]
    [mistake] = config_mistakes({"auto_create": {"lastvalue": {"key_expression": "nothing("}}})
    assert mistake.startswith('auto_create.lastvalue.key_expression = "nothing(": ')
    [mistake] = config_mistakes({"auto_create": {"lastvalue": "on"}})
    assert mistake.startswith("auto_create.lastvalue = ")


def test_one_kind_of_queue_is_made_by_itself_or_none() -> None:
    said = "Queues should be configured to be automatically created either as regular or lastvalue"
    assert config_mistakes({"auto_create": {"regular": {}}}) == [said]
    assert auto_created(CONFIG, "/a", "a") == MqSettings("/a", "a")
    regular = read_config(
        CONFIG,
        {
            "auto_create": {
                "regular": {"limits": {"max_shard_message_count": 3}},
                "lastvalue": False,
            }
        },
    )
    assert auto_created(regular, "n", "a") == MqSettings("n", "a", False, "", count_max=3)
    nothing = read_config(regular, {"auto_create": {"regular": False}})
    assert auto_created(nothing, "n", "a") is None
    again = read_config(
        nothing, {"auto_create": {"lastvalue": {"key_expression": "message.topic"}}}
    )
    made = auto_created(again, "n", "a")
    assert made is not None
    assert (made.is_lastvalue, made.key_expression) == (True, "message.topic")
    assert config_mistakes({"auto_create": {"regular": {"key_expression": "message.from"}}})


def test_only_what_was_changed_is_kept_over_the_file() -> None:
    file = MqConfig(gc_interval="5m", max_queue_count=7)
    changed = read_config(file, {"max_queue_count": 9, "quota": {"threshold_percentage": 5}})
    changes = changes_between(file, changed)
    assert changes == {"max_queue_count": 9, "quota": {"threshold_percentage": 5}}
    assert config_with(file, changes) == changed
    another = config_with(MqConfig(gc_interval="6m"), changes)
    assert (another.gc_interval, another.max_queue_count) == ("6m", 9)
    assert changes_between(file, file) == {}
    off = read_config(file, {"auto_create": {"lastvalue": False}})
    assert config_with(file, changes_between(file, off)) == off
    assert changes_between(file, off) == {"auto_create": {"lastvalue": {"enable": False}}}


# What is shown


def test_what_is_shown_fits_its_description() -> None:
    for settings in (REGULAR, LAST_VALUE, MqSettings("a", "b", ack_timeout_ms=5)):
        shown = show(settings)
        assert msgspec.to_builtins(msgspec.convert(shown, MqInfo)) == shown
    shown = show_config(CONFIG)
    assert msgspec.to_builtins(msgspec.convert(shown, MqConfigInfo)) == shown


def test_what_is_shown_can_be_read_again() -> None:
    for settings in (REGULAR, LAST_VALUE, read_new({"topic_filter": "t", "ack_timeout": "5s"})):
        assert read_update(settings, show(settings)) == settings
    assert show_config(read_config(CONFIG, show_config(CONFIG))) == show_config(CONFIG)


def test_numbers_are_shown_where_text_was_written() -> None:
    body = {
        "topic_filter": "t",
        "data_retention_period": "7d",
        "limits": {"max_shard_message_count": 1000, "max_shard_message_bytes": "100MB"},
        "ping_interval": "5s",
    }
    shown = show(read_new(body))
    assert shown["data_retention_period"] == 604_800_000
    assert shown["limits"] == {
        "max_shard_message_count": 1000,
        "max_shard_message_bytes": 104_857_600,
    }
    assert "ping_interval" not in shown
    assert "key_expression" not in show(REGULAR)


# The file


def load(text: str, tmp_path: Path) -> Settings:
    path = tmp_path / "queuelake.toml"
    path.write_text(text)
    return load_settings(str(path), {}, [])


def test_the_file_sets_what_holds_at_the_start(tmp_path: Path) -> None:
    text = """
        [mq]
        gc_interval = "5m"
        max_queue_count = 0
        [mq.auto_create.lastvalue]
        enable = false
        [mq.auto_create.regular]
        enable = true
        limits.max_shard_message_bytes = "1MB"
    """
    config = load(text, tmp_path).mq
    assert (config.gc_interval_ms, config.max_queue_count) == (300_000, 0)
    made = auto_created(config, "/a", "a")
    assert made is not None
    assert (made.is_lastvalue, made.bytes_max) == (False, 1 << 20)
    assert load("", tmp_path).mq == CONFIG
    create = AutoCreate(AutoCreateRegular(), AutoCreateLastValue())
    assert CONFIG.auto_create == create
    assert load_settings(None, {"QUEUELAKE__MQ__ALLOW_V3": "false"}, []).mq.allow_v3 is False


def test_a_mistake_in_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load('[mq]\ngc_intervall = "5m"\nn_shards = 4\n', tmp_path)
    assert [mistake.partition(": ")[2] for mistake in caught.value.mistakes] == [
        'mq.gc_intervall = "5m": unknown key; did you mean mq.gc_interval?',
        "mq.n_shards = 4: allowed: an integer from 1 to 1",
    ]


def test_the_file_may_switch_a_kind_on_and_off(tmp_path: Path) -> None:
    config = load("[mq.auto_create]\nlastvalue = false\nregular = true\n", tmp_path).mq
    assert config.auto_create.regular == AutoCreateRegular(enable=True)
    assert config.auto_create.lastvalue == AutoCreateLastValue(enable=False)
    assert load_settings(None, {}, ["mq.auto_create.lastvalue=false"]).mq == (
        read_config(CONFIG, {"auto_create": {"lastvalue": False}})
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "regular = true",
            "mq: Queues should be configured to be automatically created either as regular or "
            "lastvalue",
        ),
        (
            'lastvalue.key_expression = "nth(1"',
            "mq: auto_create.lastvalue.key_expression = \"nth(1\": column 4: '(' is never closed",
        ),
    ],
)
def test_what_does_not_go_together_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"[mq.auto_create]\n{text}\n", tmp_path)
    assert caught.value.mistakes == [f"file {tmp_path / 'queuelake.toml'}: {said}"]
