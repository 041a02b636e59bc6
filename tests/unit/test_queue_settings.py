"""Settings of a queue: a partial tree over complete ones, an entry for each mistake, a policy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from queuelake.config_types import DURATION_MS_MAX, parse_duration, parse_size
from queuelake.engine.policy import settings as policies
from queuelake.engine.policy.settings import Policy, policy_of
from queuelake.errors import ConfigError
from queuelake.queue_settings import (
    BadQueueSettingsError,
    QueueSettings,
    changes_allowed,
    configured,
    dead_letter_target,
    merged,
    read_changes,
    settings_of,
)
from queuelake.settings import Settings, as_table, load_settings

BASE = QueueSettings()


def mistakes(changes: dict[str, object], name: str = "") -> list[str]:
    with pytest.raises(BadQueueSettingsError) as caught:
        configured(BASE, changes, name)
    assert caught.value.reason_code == 0x83
    assert caught.value.http_status == 400
    return caught.value.mistakes


def mistake(changes: dict[str, object], name: str = "") -> str:
    found = mistakes(changes, name)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("1.5m", 90_000),
            ("7d", 604_800_000),
        ),
        *(("168h", 604_800_000), ("1h30m", 5_400_000), ("0.1ms", 1)),
    ],
)
def test_a_duration_is_a_number_and_its_unit(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s", "5S", "1e3s", "5s ", "5w", "36501d", "1" * 65 + "s", "٣s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)
    assert parse_duration("36500d") == DURATION_MS_MAX


def test_a_size_is_whole_bytes() -> None:
    assert [parse_size(text) for text in ("10MiB", "1.5 kB", "7B")] == [10 * 1024**2, 1500, 7]
    for text in ("10", "MiB", "0.3B", "1 mib", "-1B"):
        with pytest.raises(ValueError):
            parse_size(text)


def test_defaults_are_those_of_the_contract_and_of_the_machine() -> None:
    ours, machines = policy_of(BASE, False), Policy()
    names = [name for name in dir(machines) if not name.startswith("_")]
    assert len(names) == 38
    assert [getattr(ours, name) for name in names] == [getattr(machines, name) for name in names]


def test_a_partial_tree_changes_only_what_it_names() -> None:
    tree: dict[str, object] = {
        "name": "ignored",
        "partitions": 4,
        "retry_policy": {"max_retries": 0, "total_timeout": 0},
        "limits": {"max_message_size": "2MiB"},
    }
    settings = configured(BASE, tree)
    assert (settings.partitions, settings.retry_policy.max_retries) == (4, 0)
    assert settings.retry_policy.total_timeout == "0s"
    assert settings.retry_policy.initial_backoff == "5s"
    assert settings.limits.max_message_size == 2 * 1024**2
    assert configured(settings, {}) == settings
    assert configured(BASE, msgspec.to_builtins(settings)) == settings
    assert QueueSettings() == BASE


def test_every_mistake_has_its_entry() -> None:
    duration = 'a duration such as "250ms", "30s", "1.5m", "168h" or "7d"'
    assert mistakes(
        {
            "partitions": 0,
            "ordering": "fifo",
            "partitons": 3,
            "limits": {"message_ttl": 5, "max_queue_depth": None},
            "performance": {"delivery_timeout": 0, "prefetch": True},
            "retry_policy": [],
            "topics": [1],
        }
    ) == [
        "partitions = 0: allowed: an integer from 1 to 1000",
        'ordering = "fifo": allowed: "none", "partition", "strict"',
        "partitons = 3: unknown key; did you mean partitions or compaction or retention?",
        f"limits.message_ttl = 5: allowed: {duration}, or 0; at most 36500d",
        "limits.max_queue_depth = null: allowed: an integer from 1 to 1000000000000000",
        f"performance.delivery_timeout = 0: allowed: {duration}, greater than 0; at most 36500d",
        "performance.prefetch = true: allowed: an integer from 1 to 1000000000000000",
        "retry_policy = (hidden): allowed: a table with max_retries, initial_backoff, "
        "max_backoff, backoff_multiplier, total_timeout",
        "topics = [1]: allowed: an array, each element a string",
    ]


@pytest.mark.parametrize("partitions", [0, -1, 1001, 10**30, 1.0, "4", True])
def test_partitions_have_bounds(partitions: object) -> None:
    assert "from 1 to 1000" in mistake({"partitions": partitions})


def test_keys_which_need_each_other() -> None:
    assert mistake({"ordering": "strict"}) == ('ordering = "strict": needs partitions = 1, not 10')
    assert configured(BASE, {"ordering": "strict", "partitions": 1}).ordering == "strict"
    assert 'max_backoff = "1s"' in mistake({"retry_policy": {"max_backoff": "1s"}})
    assert "needs a cluster" in mistake({"replication": "quorum"})
    clustered = msgspec.structs.replace(BASE, replication="quorum")
    assert configured(clustered, {"replication": "quorum"}) == clustered
    with pytest.raises(BadQueueSettingsError, match="a cluster replicates everything"):
        configured(clustered, {"replication": "none"})
    for tree in ({"max_age": "1h"}, {"max_bytes": 1}, {"max_messages": 1}):
        assert 'needs type = "stream"' in mistake({"retention": tree})
        configured(BASE, {"type": "stream", "retention": tree})
    assert 'needs type = "stream"' in mistake({"compaction": {"enabled": True}})


def test_a_refused_value_is_not_reported_again_by_a_rule() -> None:
    assert len(mistakes({"ordering": "strict", "partitions": 0})) == 1


@pytest.mark.parametrize("topic", ["", "a/#/b", "a+", "$SYS/#", "$queue/a"])
def test_only_ordinary_topics_can_be_bound(topic: str) -> None:
    assert mistake({"topics": ["a/+", topic]}).startswith(f'topics holds "{topic}"')


@pytest.mark.parametrize("topic", ["", "a", "$queue/", "$queue/a/$ack", "$queue/a/#", "$queue/me"])
def test_dead_letters_go_to_another_queue(topic: str) -> None:
    assert "dlq_config.topic" in mistake({"dlq_config": {"topic": topic}}, "me")


@pytest.mark.parametrize("url", ["x", "ftp://h/", "http://", "http://h:99999/", "http://["])
def test_a_webhook_is_a_url(url: str) -> None:
    assert "alert_webhook" in mistake({"dlq_config": {"alert_webhook": url}})


def test_what_is_no_json_object_has_its_own_reason_code() -> None:
    assert read_changes(b'{"partitions":4}') == {"partitions": 4}
    for payload in (b"", b"{", b"[]", b"5", b"\xff", b'{"a":"\xff"}', b"[" * 100_000):
        with pytest.raises(BadQueueSettingsError) as caught:
            read_changes(payload)
        assert caught.value.reason_code == 0x99


def test_partitions_never_shrink_and_the_type_stays() -> None:
    more = configured(BASE, {"partitions": 20})
    changes_allowed(BASE, more)
    with pytest.raises(BadQueueSettingsError, match="from 20 to 1000"):
        changes_allowed(more, BASE)
    with pytest.raises(BadQueueSettingsError, match='type "classic"'):
        changes_allowed(BASE, configured(BASE, {"type": "stream"}))
    with pytest.raises(BadQueueSettingsError) as refused:
        changes_allowed(BASE, settings_of("a", BASE, {"type": "quorum"}))
    assert len(refused.value.mistakes) == 1, "that it has one partition only follows"


def test_where_dead_letters_go() -> None:
    assert dead_letter_target(BASE, "a/b") == "dlq/a/b"
    assert dead_letter_target(BASE, "dlq/a/b") == ""
    assert dead_letter_target(configured(BASE, {"dlq_config": {"enabled": False}}), "a") == ""
    assert dead_letter_target(configured(BASE, {"dlq_config": {"topic": "$queue/e"}}), "a") == "e"


def test_dead_letters_have_one_partition_unless_their_queue_says_more() -> None:
    assert settings_of("a", BASE, {}).partitions == 10
    assert settings_of("dlq/a", BASE, {}).partitions == 1
    assert settings_of("dlq/a", BASE, {"partitions": 3}).partitions == 3


def test_dead_letters_are_never_given_up() -> None:
    tree: dict[str, object] = {"limits": {"max_queue_depth": 1}, "overflow": "drop_head"}
    policy = policy_of(configured(BASE, tree), True)
    assert policy.is_dead_letter_queue
    assert (policy.ttl_ms, policy.total_timeout_ms) == (0, 0)
    assert policy.depth_max == policy.retries_max == policies.UNLIMITED
    assert not policy.dlq_enabled
    assert not policy.drop_head


@pytest.mark.parametrize(
    ("tree", "blocks"),
    [
        ({"ordering": "strict", "partitions": 1}, policies.BLOCKS_PARTITION),
        ({"ordering": "none"}, policies.BLOCKS_NOTHING),
        ({"retry_blocks": "none"}, policies.BLOCKS_NOTHING),
        ({"ordering": "strict", "partitions": 1, "retry_blocks": "key"}, policies.BLOCKS_KEY),
    ],
)
def test_what_waits_behind_a_retry_follows_from_the_ordering(
    tree: dict[str, object], blocks: int
) -> None:
    assert policy_of(configured(BASE, tree), False).retry_blocks == blocks


def test_partial_trees_are_merged_table_by_table() -> None:
    tree = {"limits": {"max_queue_depth": 1, "message_ttl": "1h"}, "topics": ["a"]}
    changes = {"limits": {"max_queue_depth": 2}, "topics": ["b"]}
    assert merged(tree, changes) == {
        "limits": {"max_queue_depth": 2, "message_ttl": "1h"},
        "topics": ["b"],
    }
    assert tree["topics"] == ["a"]


def load(*sets: str, toml: str = "", folder: Path | None = None, **env: str) -> Settings:
    path = None if folder is None else folder / "q.toml"
    if path is not None:
        path.write_text(toml)
    return load_settings(None if path is None else str(path), env, list(sets))


def config_mistakes(*sets: str, toml: str = "", folder: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*sets, toml=toml, folder=folder)
    return caught.value.mistakes


def test_queues_are_configured_in_three_layers(tmp_path: Path) -> None:
    toml = """
    [queues]
    cache_bytes_max = "1MiB"
    [queues.defaults]
    partitions = 2
    [queues."tasks/image"]
    partitions = 3
    limits = { max_queue_depth = 5, message_ttl = "1h" }
    [queues."$queue/plain"]
    """
    settings = load(
        "queues.auto_create=false",
        "queues.defaults.limits.max_queue_depth=7",
        'queues."$queue/tasks/image".limits.max_queue_depth=6',
        "queues.simple={partitions=9}",
        toml=toml,
        folder=tmp_path,
        QUEUELAKE__QUEUES__DEFAULTS__PARTITIONS="4",
    )
    queues = settings.queues
    assert (queues.auto_create, queues.cache_bytes_max) == (False, 1024**2)
    assert (queues.defaults.partitions, queues.defaults.limits.max_queue_depth) == (4, 7)
    assert queues.named == {
        "tasks/image": {"partitions": 3, "limits": {"max_queue_depth": 6, "message_ttl": "1h"}},
        "plain": {},
        "simple": {"partitions": 9},
    }
    own = settings_of("tasks/image", queues.defaults, queues.named["tasks/image"])
    assert (own.partitions, own.limits.message_ttl) == (3, "1h")


def test_a_mistake_about_a_queue_names_origin_queue_key_and_bounds() -> None:
    assert config_mistakes(
        'queues."tasks/x".partitions=0',
        'queues."a//b".partitions=1',
        'queues."x".partitons=1',
        "queues.auto_creat=true",
        "queues.default.partitions=3",
        "queues.defaults.limits.message_ttl=soon",
    ) == [
        '--set: queues."$queue/tasks/x".partitions = 0: allowed: an integer from 1 to 1000',
        "--set: queues.\"a//b\": queue name 'a//b': has an empty level",
        '--set: queues."$queue/x".partitons = "1": unknown key; did you mean '
        'queues."$queue/x".partitions or queues."$queue/x".compaction or '
        'queues."$queue/x".retention?',
        '--set: queues.auto_creat = "true": unknown key; did you mean queues.auto_create?',
        '--set: queues.default: did you mean queues.defaults? The queue is queues."$queue/default"',
        '--set: queues.defaults.limits.message_ttl = "soon": allowed: a duration such as '
        '"250ms", "30s", "1.5m", "168h" or "7d", or 0; at most 36500d',
    ]


def test_rules_see_a_queue_with_the_defaults_below_it() -> None:
    strict = "queues.defaults.ordering=strict"
    assert config_mistakes(strict, "queues.x.sublevels=true") == [
        '--set: queues.defaults.ordering = "strict": needs partitions = 1, not 10'
    ]
    load(strict, "queues.defaults.partitions=1", "queues.x.sublevels=true")
    assert config_mistakes("queues.x.ordering=strict") == [
        '--set: queues."$queue/x".ordering = "strict": needs partitions = 1, not 10'
    ]
    load('queues."dlq/x".ordering=strict')
    assert "every queue" in config_mistakes('queues.defaults.topics=["a"]')[0]
    assert "not the one" in config_mistakes("queues.x.dlq_config.topic=$queue/x")[0]


def test_a_queue_with_the_name_of_a_key_is_written_with_its_prefix() -> None:
    named = load('queues."$queue/defaults".partitions=3', "queues.named.partitions=4").queues.named
    assert named == {"defaults": {"partitions": 3}, "named": {"partitions": 4}}


def test_settings_are_shown_in_the_words_of_the_file() -> None:
    queues = as_table(load('queues."a/b".partitions=3'))["queues"]
    assert isinstance(queues, dict)
    assert queues["$queue/a/b"] == {"partitions": 3}
    assert "named" not in queues
