"""Enqueuers and consumers as the queue knows them."""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from queuelake.engine.publishers import PublisherSession
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.policy import UNSET


def node_of(pid: str) -> str:
    """The node where the client half of a session runs."""
    return pid.partition("/")[0]


@final
class Enqueuer:
    __slots__ = ("blocked_index", "numbers", "pid", "suspected")

    def __init__(self, pid: str) -> None:
        self.pid: str = pid
        self.numbers: PublisherSession = PublisherSession()
        self.suspected: bool = False
        self.blocked_index: int = 0  # where it was told not to publish; 0: it may


@final
@mypyc_attr(acyclic=True)
class Consumer:
    """It gets messages when it `is_up`, has credit, and is not in line behind the active one."""

    __slots__ = (
        "cancelled",
        "credit",
        "credited",
        "delivery_count",
        "held",
        "in_service",
        "key",
        "next_id",
        "pid",
        "prefetch",
        "priority",
        "quiescing",
        "since",
        "suspected",
        "tag",
        "timed_out",
        "timeout_ms",
        "waiting",
    )

    def __init__(self, key: int, pid: str, tag: str) -> None:
        self.key: int = key  # the index of its first command
        self.pid: str = pid
        self.tag: str = tag
        self.prefetch: int = 0
        self.priority: int = 0
        self.timeout_ms: int = UNSET
        self.credited: bool = False
        self.credit: int = 0
        self.delivery_count: int = 0  # of a credited one: credit used or void
        self.next_id: int = 0
        self.held: dict[int, Message] = {}  # in order of hand-out
        self.cancelled: bool = False  # gets no more; forgotten when it has settled all
        self.suspected: bool = False  # its node cannot be reached
        self.timed_out: set[int] = set()  # held too long and taken back: it must settle these
        self.quiescing: bool = False  # active, and to be replaced when it has settled all
        self.waiting: bool = False  # another one is active
        self.since: int = 0  # the index where it got in line
        self.in_service: bool = False

    def is_up(self) -> bool:
        return not self.cancelled and not self.suspected and not self.timed_out

    def may_be_served(self) -> bool:
        return self.credit > 0 and self.is_up() and not self.waiting and not self.quiescing

    def refill(self) -> None:
        """What a prefetch leaves; a credited consumer says itself when it takes more."""
        if not self.credited:
            self.credit = max(0, self.prefetch - len(self.held))

    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.suspected:
            return "suspected"
        if self.timed_out:
            return "timed_out"
        if self.waiting:
            return "waiting"
        return "quiescing" if self.quiescing else "up"


def line_order(consumer: Consumer) -> tuple[bool, int, int]:
    """Whose turn it is to be active: who is there, by priority, who waits longest."""
    return not consumer.is_up(), -consumer.priority, consumer.since
