"""Events of mailboxes: what their owners refused, and what grew too old.

To the table all mailboxes are one queue: the consumer of an event is the owner, its partition the
shard of the owner, and the message is named by the sequence which the owner knows.
"""

from __future__ import annotations

from typing import final

from queuelake.broker.pipeline.events import EventLog, Ledger
from queuelake.engine import events as e
from queuelake.engine.events import Events
from queuelake.storage.api import Batch
from queuelake.storage.ecq_tables import digest
from queuelake.storage.log_tables import shard_of
from queuelake.tables import ECQ_QUEUE_ID


@final
class MailboxEvents:
    """Those of the group being collected, and of the one being committed."""

    __slots__ = ("_collected", "_log", "_sealed")

    def __init__(self, ledger: Ledger) -> None:
        self._log: EventLog = EventLog(ledger, ECQ_QUEUE_ID)
        self._collected: Events = Events()
        self._sealed: Events = Events()

    def note(
        self, step: int, now_ms: int, owner: bytes, seq: int, attempt: int = 0, reason: str = ""
    ) -> None:
        """Whoever notes something takes part in the commit."""
        name = owner.decode("utf-8", "replace")
        shard = shard_of(digest(owner))
        self._collected.add(step, now_ms, shard, seq, "", name, attempt, reason)

    def write(self, batch: Batch) -> None:
        if len(self._collected):
            self._log.write(batch, self._collected)
            self._sealed, self._collected = self._collected, Events()

    def stored(self) -> None:
        if len(self._sealed):
            self._sealed = Events()

    def rolled_back(self, reverted: set[bytes]) -> bool:
        """Owners did refuse what they refused, unless their answer is reverted; what else is told
        of has not happened. Whether there is something to be written again."""
        former = self._sealed
        former.extend(self._collected)
        names = {name.decode("utf-8", "replace") for name in reverted}
        self._collected, self._sealed = former.only(e.REJECTED, names), Events()
        return len(self._collected) > 0
