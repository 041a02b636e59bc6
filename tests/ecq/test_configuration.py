"""The `[ecq]` section (section 7)."""

from __future__ import annotations

import pytest

from queuelake.errors import AnswerError
from tests.conftest import BrokerFactory
from tests.ecq.client import numbered, pairs
from tests.ecq.conftest import BARE, Connect
from tests.ecq.control import Mailboxes
from tests.harness.broker import BrokerError

DEFAULTS = {
    "writer_pool_size": 0,
    "data_retention": "7d",
    "gc_interval": "1h",
    "reader_batch_size": 5,
    "write_timeout": "5s",
    "read_timeout": "5s",
    "max_keys_per_queue": 0,
    "max_bytes_per_queue": 0,
    "reject_policy": "advance",
    "state_retention": "30d",
}
WRONG = [
    """
    writer_pool_size = -1
    reader_batch_size = 0
    data_retention = "soon"
    gc_interval = "1 fortnight"
    write_timeout = ""
    read_timeout = "x"
    max_keys_per_queue = -1
    max_bytes_per_queue = "much"
    reject_policy = "perhaps"
    state_retention = "never"
    no_such_key = 1
    """,
    """
    writer_pool_size = 10241
    reader_batch_size = 32
    data_retention = "-1s"
    gc_interval = 0
    """,
    """
    reader_batch_size = -5
    """,
]


@pytest.mark.rule("section 7")
def test_the_defaults(mailboxes: Mailboxes) -> None:
    config = mailboxes.config()
    assert {key: config["origin"][key] for key in DEFAULTS} == DEFAULTS
    assert config["inuse"]["data_retention"] == 7 * 24 * 3600 * 1000


@pytest.mark.rule("section 7")
def test_every_key_can_be_set(fresh_broker: BrokerFactory) -> None:
    text = {
        "data_retention": "86400000",
        "gc_interval": "10m",
        "write_timeout": "1500",
        "read_timeout": "2s",
        "max_bytes_per_queue": "1MiB",
        "reject_policy": "dlq",
        "state_retention": "0",
    }
    numbers = {"writer_pool_size": 10240, "reader_batch_size": 31, "max_keys_per_queue": 9}
    settings = {f"ecq.{key}": value for key, value in (text | numbers).items()}
    config = Mailboxes(fresh_broker(BARE | settings)).config()["inuse"]
    expected = numbers | {
        "data_retention": 86_400_000,
        "gc_interval": 600_000,
        "write_timeout": 1500,
        "max_bytes_per_queue": 1024 * 1024,
        "reject_policy": "dlq",
        "state_retention": 0,
    }
    assert {key: config[key] for key in expected} == expected


@pytest.mark.rule("section 7")
@pytest.mark.parametrize("text", WRONG)
def test_a_broker_with_wrong_settings_does_not_start_and_names_each(
    fresh_broker: BrokerFactory, text: str
) -> None:
    lines = [line.strip() for line in text.strip().splitlines()]
    with pytest.raises(BrokerError) as refusal:
        fresh_broker(BARE, config="\n".join(["[ecq]", *lines, ""]))
    for line in lines:
        assert line.partition(" ")[0] in str(refusal.value)


@pytest.mark.rule("section 7")
@pytest.mark.parametrize(
    ("key", "value"),
    [("reader_batch_size", 32), ("gc_interval", "soon"), ("writer_pool_size", -1), ("x", 1)],
)
def test_a_wrong_change_is_refused_with_its_key(
    mailboxes: Mailboxes, key: str, value: object
) -> None:
    before = mailboxes.config()
    with pytest.raises(AnswerError, match=key):
        mailboxes.configure(**{key: value, "reject_policy": "dlq"})
    assert mailboxes.config() == before


@pytest.mark.rule("section 7")
def test_a_change_counts_at_once_and_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, owner: str
) -> None:
    broker = fresh_broker(BARE)
    Mailboxes(broker).configure(reader_batch_size=2)
    connect(of=broker).write_each(owner, *numbered(5))
    for _ in range(2):
        device = connect(owner, of=broker)
        device.listen()
        assert pairs(device.hold_all()) == numbered(2)
        broker.kill()
        broker.restart()
