"""Device mailboxes without devices: the real operations over a service which only remembers."""

from __future__ import annotations

import msgspec

from queuelake.broker.ecq_operations import EcqOperations
from queuelake.control_ecq import (
    EMPTY,
    NONE,
    EcqEntry,
    EcqEntryPage,
    EcqFigures,
    EcqInspection,
    EcqOwner,
    EcqOwnerPage,
    EcqPlace,
    EcqRange,
    EcqRewind,
    EcqStatus,
)
from queuelake.ecq_settings import EcqConfig
from queuelake.errors import RefusedError
from tests.api.live import LiveAdmin

OWNERS = ["c1", "status", "with space", "ünïcode", "50%"]
FIGURES = EcqFigures(
    queues=5,
    attached=2,
    writes=7,
    write_errors_by_reason={"quota": 3},
    compacted=1,
    delivered=4,
    acked=3,
    direct_publish_rejected=6,
)


class FakeMailboxes:
    """The service, and what a test can see of the calls to it."""

    def __init__(self) -> None:
        self.config = EcqConfig()
        self.collecting = False
        self.acked: dict[str, int] = {}
        self.commits = 0
        self.restore()

    def restore(self) -> None:
        """Configuration and positions are as at the beginning."""
        self.config = EcqConfig()
        self.acked = dict.fromkeys(OWNERS, 2)

    def status(self) -> EcqStatus:
        if not self.acked:
            return EcqStatus(EMPTY, EMPTY, 0)
        first, last = min(self.acked), max(self.acked)
        messages = EcqRange(EcqPlace(first, 3), EcqPlace(last, 9))
        states = EcqRange(EcqPlace(first, self.acked[first]), EcqPlace(last, self.acked[last]))
        return EcqStatus(messages, states, len(self.acked))

    def inspect(self, owner: str) -> EcqInspection:
        if owner not in self.acked:
            return EcqInspection(NONE, NONE, EMPTY)
        return EcqInspection(self.acked[owner], "2026-01-31T12:00:00.000Z", "[3,...,9]")

    def owners(self, cursor: str, limit: int) -> EcqOwnerPage:
        known = [name for name in sorted(self.acked) if name > cursor]
        shown = [EcqOwner(name, False, 9, 1000, self.acked[name]) for name in known[:limit]]
        return EcqOwnerPage(shown, shown[-1].owner if len(known) > limit else None)

    def entries(self, owner: str, cursor: str, limit: int) -> EcqEntryPage:
        entries = [EcqEntry(seq, f"key{seq}", 1000, 0, 2, b"on") for seq in range(3, 3 + limit)]
        return EcqEntryPage(owner, False, self.acked.get(owner, 0), 0, entries[:7])

    def collect_garbage(self) -> bool:
        return not self.collecting

    def configure(self, config: EcqConfig) -> None:
        self.config = config

    def rewind(self, owner: str, body: bytes) -> int:
        try:
            asked = msgspec.json.decode(body, type=EcqRewind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(f"rewind: {error}") from error
        values = (asked.seqno, asked.ts, asked.to)
        if sum(value is not msgspec.UNSET for value in values) != 1:
            raise RefusedError("rewind takes exactly one of seqno, ts and to")
        if isinstance(asked.seqno, int):
            self.acked[owner] = min(self.acked.get(owner, 0), max(0, asked.seqno - 1))
        else:
            self.acked[owner] = 0
        return self.acked[owner]

    def figures(self) -> EcqFigures:
        return FIGURES

    async def durable(self) -> None:
        self.commits += 1


def add_mailboxes(admin: LiveAdmin) -> FakeMailboxes:
    """Let the fake broker of an admin process have device mailboxes."""
    fake = FakeMailboxes()
    admin.broker.operations.update(EcqOperations(fake, fake.durable).table())
    return fake
