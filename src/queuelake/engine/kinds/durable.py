"""The durable queue: partitions, groups, ack, nack, reject, retry, dead letters.

A message lives in one partition and has a sequence there. Each group has a `Lane` through each
partition. Entries (what the machine knows of messages) are in memory only near the places where
lanes read; elsewhere they are asked back from the store with `Load`.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.engine import commands as c
from queuelake.engine import consuming, extending, publishing, settling, upkeep
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.state import QueueState

NO_EFFECTS: Final[list[Effect]] = []


@final
class DurableQueue(QueueState):
    """One queue; the rules of `machine.py` hold."""

    __slots__ = ()

    def apply(self, meta: Meta, command: Command) -> list[Effect]:
        """Change the state as the command says; returns what is to be done when it is durable."""
        if meta.now_ms > self.now_ms:
            self.now_ms = meta.now_ms  # time never goes back, whatever the clock did
        self.reply = 0
        if isinstance(command, c.Enqueue):
            publishing.enqueue(self, command)
            return NO_EFFECTS
        effects: list[Effect] = []
        if isinstance(command, c.Settle):
            settling.settle(self, command, effects)
        elif isinstance(command, c.Dispatch):
            consuming.dispatch(self, command.in_bulk, effects)
        elif isinstance(command, c.Loaded):
            self.partitions[command.partition].loaded(command.first, command.entries)
        elif isinstance(command, c.Tick):
            upkeep.tick(self, effects)
            extending.shrink(self, effects)
        elif isinstance(command, c.Accept):
            publishing.accept(self, command)
        elif isinstance(command, c.Join):
            consuming.join(self, command, effects)
        elif isinstance(command, c.Leave):
            consuming.leave(self, command, effects)
        else:
            self._administer(command, effects)
        return effects

    def _administer(self, command: Command, effects: list[Effect]) -> None:
        if isinstance(command, c.Ranked):
            consuming.rank_stored(self, command)
        elif isinstance(command, c.Expire):
            upkeep.expire_found(self, command.entries, effects)
        elif isinstance(command, c.Configure):
            upkeep.configure(self, command.policy, effects)
        elif isinstance(command, c.Purge):
            upkeep.purge(self)
        elif isinstance(command, c.Remove):
            upkeep.remove(self, command.partition, command.seq)
        elif isinstance(command, c.Truncate):
            upkeep.truncate(self, command)
        elif isinstance(command, c.Extend):
            extending.extend(self, command)
        else:
            assert isinstance(command, c.ForgetGroup)
            upkeep.forget_group(self, command.group, effects)
