"""The checker of message queues finds what it is there to find."""

from __future__ import annotations

from tests.crash.mq_history import MqHistory

FIRST, SECOND = ("key", 0), ("key", 1)


def history(*, is_last_value: bool = True) -> MqHistory:
    return MqHistory(is_last_value, published={FIRST, SECOND}, accepted=[FIRST, SECOND])


def test_a_queue_which_keeps_its_promises_has_no_mistakes() -> None:
    seen = history()
    connection: dict[str, int] = {}
    seen.delivery(FIRST, 1, connection, "a")
    seen.delivery(SECOND, 1, connection, "a")
    seen.delivery(SECOND, 2, {}, "b")
    seen.acked.add(SECOND)
    assert seen.mistakes() == []


def test_a_message_nobody_acked_is_lost() -> None:
    regular = history(is_last_value=False)
    regular.acked.add(SECOND)
    assert regular.mistakes() == ["1 of 2 accepted messages never acked: key:0"]
    values = history()
    values.acked.add(FIRST)
    assert values.mistakes() == ["1 of 2 accepted messages never acked: key:1"]


def test_what_was_acked_for_good_may_not_come_again() -> None:
    seen = history()
    seen.acked |= {FIRST, SECOND}
    seen.sealed[SECOND] = 2
    seen.delivery(SECOND, 1, {}, "late reader")
    assert seen.mistakes() == []
    seen.delivery(SECOND, 2, {}, "a")
    assert seen.mistakes() == ["acked for good in life 2: key:1 (life 2, a)"]


def test_a_last_value_queue_never_goes_back() -> None:
    seen = history()
    seen.acked |= {FIRST, SECOND}
    connection: dict[str, int] = {}
    seen.delivery(SECOND, 1, connection, "a")
    seen.delivery(FIRST, 1, {}, "another connection, read late")
    assert seen.mistakes() == []
    seen.delivery(FIRST, 1, connection, "a")
    seen.delivery(FIRST, 2, {}, "b")
    assert seen.mistakes() == [
        "came on one connection after 1: key:0 (life 1, a)",
        "came after 1 of life 1: key:0 (life 2, b)",
    ]


def test_what_nobody_published_is_no_message() -> None:
    seen = history(is_last_value=False)
    seen.acked |= {FIRST, SECOND}
    seen.delivery(("other", 1), 1, {}, "a")
    assert seen.mistakes() == ["never published: other:1 (life 1, a)"]
