"""The crash test of queues can fail: each broken promise is seen in a history which has it."""

from __future__ import annotations

import pytest

from tests.crash.queue_history import Delivery, History, Settlement, Verb, mistakes

UNKNOWN_ID, NOT_HELD = 0x10, 0x87


def delivery(number: int, count: int = 1, life: int = 1, partition: int = 3) -> Delivery:
    return Delivery(("k", number), (partition, number + 1), count, life, "c1")


def settled(
    of: Delivery, verb: Verb = "ack", code: int | None = 0, *, in_time: bool = True
) -> Settlement:
    return Settlement(of, verb, code, in_time)


def history(
    deliveries: list[Delivery],
    settlements: list[Settlement],
    dead: list[int] | None = None,
    accepted: int = 2,
) -> History:
    return History(
        [("k", number) for number in range(accepted)],
        deliveries,
        settlements,
        [("k", number) for number in dead or []],
    )


FIRST, SECOND = delivery(0), delivery(1)
AGAIN = delivery(0, count=2)
ANSWER_LOST = settled(FIRST, code=None, in_time=False)
RIGHT: dict[str, History] = {
    "two acked": history([FIRST, SECOND], [settled(FIRST), settled(SECOND)]),
    "nacked, then acked": history(
        [FIRST, AGAIN, SECOND], [settled(FIRST, "nack"), settled(AGAIN), settled(SECOND)]
    ),
    "one rejected": history([FIRST, SECOND], [settled(FIRST, "reject"), settled(SECOND)], dead=[0]),
    "one dead after too many retries, moved twice": history(
        [FIRST, SECOND], [settled(SECOND)], dead=[0, 0]
    ),
    "ack without an answer, not taken": history(
        [FIRST, delivery(0, 2, life=2), SECOND],
        [ANSWER_LOST, settled(delivery(0, 2, life=2)), settled(SECOND)],
    ),
    "ack without an answer, not taken, then rejected": history(
        [FIRST, delivery(0, 2, life=2), SECOND],
        [ANSWER_LOST, settled(delivery(0, 2, life=2), "reject"), settled(SECOND)],
        dead=[0],
    ),
    "ack after the delivery timeout refused": history(
        [FIRST, AGAIN, SECOND],
        [settled(FIRST, code=NOT_HELD, in_time=False), settled(AGAIN), settled(SECOND)],
    ),
    "an old life read late": history(
        [delivery(0, 2, life=2), delivery(1, life=2), FIRST],
        [settled(delivery(0, 2, life=2)), settled(delivery(1, life=2))],
    ),
    "first delivery never read": history([SECOND, AGAIN], [settled(SECOND), settled(AGAIN)]),
}
WRONG: dict[str, tuple[History, str]] = {
    "never delivered": (history([FIRST], [settled(FIRST)]), "1 of them never delivered: k:1"),
    "delivered, and forgotten": (
        history([FIRST, SECOND], [settled(FIRST)]),
        "1 of 2 accepted messages neither acked nor dead, 0 of them never delivered",
    ),
    "nacked, and forgotten": (
        history([FIRST, SECOND], [settled(FIRST), settled(SECOND, "nack")]),
        "neither acked nor dead",
    ),
    "not ours": (
        history([FIRST, SECOND], [settled(FIRST), settled(SECOND)], accepted=1),
        "never accepted: k:1",
    ),
    "acked and dead": (
        history([FIRST, SECOND], [settled(FIRST), settled(SECOND)], dead=[1]),
        "acked and dead-lettered: k:1",
    ),
    "rejected and gone": (
        history([FIRST, AGAIN, SECOND], [settled(FIRST, "reject"), ANSWER_LOST, settled(SECOND)]),
        "rejected, and not in the dead-letter queue",
    ),
    "holder refused": (
        history([FIRST, SECOND], [settled(FIRST, code=NOT_HELD), settled(SECOND)]),
        "ack of the holder refused with 0x87",
    ),
    "holder unknown": (
        history([FIRST, SECOND], [settled(FIRST, code=UNKNOWN_ID), settled(SECOND)]),
        "refused with 0x10",
    ),
    "stored twice": (
        history(
            [FIRST, Delivery(("k", 0), (3, 9), 2, 1, "c1"), SECOND],
            [settled(FIRST, code=None), settled(SECOND)],
        ),
        "stored twice, at (3, 1) and (3, 9)",
    ),
    "key in two partitions": (
        history([FIRST, delivery(1, partition=4)], [settled(FIRST), settled(SECOND)]),
        "key in partitions 3 and 4",
    ),
    "counted from 1 after a crash": (
        history(
            [FIRST, delivery(0, life=2), SECOND], [settled(delivery(0, life=2)), settled(SECOND)]
        ),
        "delivery count 1 after 1",
    ),
    "first deliveries out of order": (
        history([SECOND, FIRST], [settled(FIRST), settled(SECOND)]),
        "first delivered after number 1 of its key: k:0",
    ),
    "back after its ack": (
        history([FIRST, delivery(0, 2, life=2), SECOND], [settled(FIRST), settled(SECOND)]),
        "delivered after the ack of k:0",
    ),
    "back after its ack, and acked again": (
        history([FIRST, AGAIN, SECOND], [settled(FIRST), settled(AGAIN), settled(SECOND)]),
        "delivered after the ack of k:0",
    ),
    "back after its rejection": (
        history([FIRST, AGAIN, SECOND], [settled(FIRST, "reject"), settled(SECOND)], dead=[0]),
        "delivered after the reject of k:0",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_kept_promises_are_no_mistake(name: str) -> None:
    assert mistakes(RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_broken_promises_are_found(name: str) -> None:
    of, words = WRONG[name]
    assert any(words in mistake for mistake in mistakes(of)), mistakes(of)


def test_a_serial_queue_does_not_go_back() -> None:
    overlapping = history([FIRST, SECOND, AGAIN], [settled(AGAIN), settled(SECOND)])
    assert mistakes(overlapping) == []
    assert "was out before the end of k:0" in mistakes(overlapping, serial=True)[0]


def test_a_serial_queue_may_repeat() -> None:
    repeating = history([FIRST, AGAIN, SECOND], [settled(AGAIN), settled(SECOND)])
    assert mistakes(repeating, serial=True) == []
