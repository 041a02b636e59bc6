"""The message queue: filled by topic filter, one group, each message to one consumer by strategy.

Both kinds are one machine. A regular queue keeps every message until it is acknowledged; in a
last-value queue a message takes the place of the last one of its key (`commands.Enqueue.replaces`).
There is one partition and one group, `GROUP`, which is there from the beginning. How messages come
in, go out, come back and leave: see `overwriting`, `offering`, `returning` and `leaving`.
"""

from __future__ import annotations

from typing import final

from queuelake.engine import commands as c
from queuelake.engine import (
    consuming,
    extending,
    leaving,
    offering,
    overwriting,
    returning,
    upkeep,
)
from queuelake.engine import events as e
from queuelake.engine.groups import GROUP, Group
from queuelake.engine.kinds.durable import NO_EFFECTS
from queuelake.engine.lane import Lane
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.partitioning import fnv1a
from queuelake.engine.policy.settings import Policy
from queuelake.engine.policy.strategy import seed
from queuelake.engine.state import NOT_FOUND, QueueState


@final
class MessageQueue(QueueState):
    """One queue; the rules of `machine.py` hold."""

    __slots__ = ()

    def __init__(self, policy: Policy) -> None:
        assert policy.is_message_queue
        assert policy.partitions == 1
        super().__init__(policy)
        group = Group(GROUP, 1, False, b"")
        group.lanes.append(Lane(0, self.partitions[0].gone.copy()))
        self.groups[GROUP] = group
        self.next_group_id = 2

    def apply(self, meta: Meta, command: Command) -> list[Effect]:
        """Change the state as the command says; returns what is to be done when it is durable."""
        if meta.now_ms > self.now_ms:
            self.now_ms = meta.now_ms  # time never goes back, whatever the clock did
        self.reply = 0
        if isinstance(command, c.Enqueue):
            overwriting.enqueue(self, command)
            return NO_EFFECTS
        effects: list[Effect] = []
        if isinstance(command, c.Settle):
            returning.settle(self, command, effects)
        elif isinstance(command, c.Dispatch):
            offering.offer(self, command.in_bulk, effects)
        elif isinstance(command, c.Loaded):
            self.partitions[command.partition].loaded(command.first, command.entries)
        elif isinstance(command, c.Tick):
            returning.time_out(self, effects)
            leaving.trim(self, effects)
        elif isinstance(command, c.Join):
            self._join(command, effects)
        elif isinstance(command, c.Leave):
            self._leave(command, effects)
        else:
            self._administer(command)
        return effects

    def is_waiting(self) -> bool:
        """A message which one consumer refused may go to it again after a while."""
        group = self.groups[GROUP]
        if group.consumers and group.lanes[0].returns:
            return True
        return super().is_waiting()

    def is_over(self) -> bool:
        return leaving.excess(self.policy, self.groups[GROUP].unsettled, self.bytes)

    def _administer(self, command: Command) -> None:
        if isinstance(command, c.Configure):
            self._configure(command.policy)
        elif isinstance(command, c.Expire):
            self._expire(command.entries)
        elif isinstance(command, c.Truncate):
            leaving.truncate(self, command)
        elif isinstance(command, c.Extend):
            extending.extend(self, command)
        elif isinstance(command, c.Purge):
            upkeep.purge(self)
            self._count_bytes()
        else:
            assert isinstance(command, c.Remove), f"not for a message queue: {command!r}"
            self._remove(command)

    # Consumers

    def _join(self, command: c.Join, effects: list[Effect]) -> None:
        if command.group != GROUP:
            self.reply = NOT_FOUND
            return
        is_new = command.consumer not in self.groups[GROUP].consumers
        consuming.join(self, command, effects)
        if is_new:
            self.dice = seed(self.dice, self.now_ms ^ fnv1a(command.consumer.encode()))
            self._begin_anew()

    def _leave(self, command: c.Leave, effects: list[Effect]) -> None:
        group = self.groups[GROUP]
        if command.group != GROUP or command.consumer not in group.consumers:
            return
        consuming.leave(self, c.Leave(GROUP, command.consumer, gone=False), effects)
        returning.lose(self, command.consumer)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """The consumers or the strategy changed."""
        group = self.groups[GROUP]
        group.turn = 0
        for consumer in group.order:
            consumer.turn = 0
        offering.assign(self)

    # Orders from above

    def _configure(self, policy: Policy) -> None:
        assert policy.is_message_queue
        assert policy.is_last_value == self.policy.is_last_value
        before = self.policy
        self.policy = policy
        group = self.groups[GROUP]
        for consumer in group.order:
            if consumer.prefetch == before.prefetch:  # others have a number of their own
                consumer.prefetch = policy.prefetch
        for held in group.lanes[0].held.values():
            held.deadline_ms += policy.delivery_timeout_ms - before.delivery_timeout_ms
        self.partitions[0].head_seq = 0  # it may be too old now
        if policy.strategy != before.strategy:
            self._begin_anew()

    def _expire(self, entries: list[Entry]) -> None:
        group = self.groups[GROUP]
        lane = group.lanes[0]
        for entry in entries:
            if entry.seq in lane.settled or not leaving.is_over(self.policy, entry, self.now_ms):
                continue
            self.counters.expired += 1
            self.note(e.EXPIRED, entry)
            leaving.drop(self, group, lane, entry)

    def _remove(self, command: c.Remove) -> None:
        group = self.groups[GROUP]
        lane = group.lanes[0]
        entry = leaving.known(self, lane, command.seq)
        if entry is None or command.seq in lane.settled:
            self.reply = NOT_FOUND
            return
        leaving.drop(self, group, lane, entry)

    def _count_bytes(self) -> None:
        """After a purge only what is in hand, or on its way to the dead letters, is there."""
        lane = self.groups[GROUP].lanes[0]
        entries = [held.entry for held in lane.held.values()] + list(lane.dying.values())
        self.bytes = sum([entry.size for entry in entries if entry.seq not in lane.settled])
