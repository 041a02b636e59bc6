"""What a quorum queue answers to a command, when it is applied."""

from __future__ import annotations

from typing import Final, final

from queuelake.engine.quorum.effects import Delivery


class Reply:
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code: int = code


ACCEPTED: Final = 0
REJECT_PUBLISH: Final = 1  # registered, and to wait until it is told to go
# What follows changed nothing.
NOT_ENQUEUED: Final = 2
EMPTY: Final = 3
NOT_FOUND: Final = 4
SINGLE_ACTIVE: Final = 5  # who wants one message only would go past the active consumer
NOT_CREDITED: Final = 6
TOO_LARGE: Final = 7
TAG_IN_USE: Final = 8
GONE: Final = 9  # the queue is deleted

OK: Final = Reply(ACCEPTED)


@final
class CheckedOut(Reply):
    __slots__ = ("key", "next_id")

    def __init__(self, key: int, next_id: int) -> None:
        super().__init__(ACCEPTED)
        self.key: int = key  # names the consumer from now on
        self.next_id: int = next_id  # of its next delivery


@final
class Dequeued(Reply):
    __slots__ = ("delivery", "key", "left")

    def __init__(self, key: int, delivery: Delivery, left: int) -> None:
        super().__init__(ACCEPTED)
        self.key: int = key  # to settle it with; 0: it is settled
        self.delivery: Delivery = delivery
        self.left: int = left  # messages which are ready


@final
class Credited(Reply):
    __slots__ = ("available", "credit", "delivery_count", "drained")

    def __init__(self, credit: int, delivery_count: int, available: int, drained: int) -> None:
        super().__init__(ACCEPTED)
        self.credit: int = credit
        self.delivery_count: int = delivery_count
        self.available: int = available
        self.drained: int = drained  # how much credit became void


@final
class Counted(Reply):
    """How many messages were purged, made due or assigned."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        super().__init__(ACCEPTED)
        self.count: int = count
