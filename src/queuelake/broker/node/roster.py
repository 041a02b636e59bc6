"""Which nodes there are, from what each of them says once a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import msgspec

from queuelake.cluster.engine import Messenger

SUBJECT: Final = "members"
ALIVE_S: Final = 5.0
OWNER: Final = "owner"  # a role: it serves clients


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself."""

    node: str
    role: str  # "owner", "replica", "copying" or "stuck"
    position: int
    epoch: int
    chain: int
    synced: int  # the position it has whatever happens to its machine
    version: str
    addresses: list[str]
    draining: bool = False
    problem: str = ""


@final
class Roster:
    """`clock` is monotonic: how long ago a node was heard is nobody else's business."""

    def __init__(
        self,
        messenger: Messenger,
        clock: Callable[[], float],
        owner_changed: Callable[[str, str], None],
        met: Callable[[str], None] = lambda node: None,
    ) -> None:
        self._messenger = messenger
        self._clock = clock
        self._owner_changed = owner_changed  # from which node to which; "" for none
        self._met = met  # another node, heard for the first time
        self._owner = ""
        self._epoch = 0  # of the last owner there was
        self._heard: dict[str, tuple[Report, float]] = {}

    async def start(self) -> None:
        await self._messenger.receive(SUBJECT, self._receive)

    def say(self, report: Report) -> None:
        self._note(report)
        self._messenger.send(SUBJECT, msgspec.msgpack.encode(report))

    def _receive(self, data: bytes) -> None:
        try:
            report = msgspec.msgpack.decode(data, type=Report)
        except msgspec.MsgspecError:
            return  # of another version: it is not counted until both are the same
        if report.node != self._messenger.node:
            if report.node not in self._heard:
                self._met(report.node)
            self._note(report)

    def _note(self, report: Report) -> None:
        self._heard[report.node] = (report, self._clock())
        # No epoch has two owners. That of the last one may be told again: when a NATS server goes
        # on after a pause, what a node said before it went to another one arrives late.
        is_news = report.epoch > self._epoch or (report.epoch == self._epoch and not self._owner)
        if report.role == OWNER and is_news:
            self._epoch = report.epoch
            self._change_owner(report.node)
        elif report.role != OWNER and report.node == self._owner:
            self._change_owner("")

    def _change_owner(self, node: str) -> None:
        former, self._owner = self._owner, node
        self._owner_changed(former, node)

    def owner(self) -> str:
        """Who says that it serves, and was not followed by another; "" when it is not heard."""
        return self._owner if self.is_alive(self._owner) else ""

    def all(self) -> list[tuple[Report, float]]:
        """Each node ever heard, with how long ago in seconds, sorted by name."""
        now = self._clock()
        return [(report, now - at) for _, (report, at) in sorted(self._heard.items())]

    def alive(self) -> list[Report]:
        return [report for report, ago_s in self.all() if ago_s < ALIVE_S]

    def is_alive(self, node: str) -> bool:
        heard = self._heard.get(node)
        return heard is not None and self._clock() - heard[1] < ALIVE_S

    def forget(self, node: str) -> bool:
        """A node which will not come back; tells whether it was known."""
        return self._heard.pop(node, None) is not None
