"""The quorum queue as a machine: each command to its module. The rules of `engine.machine` hold.

Behind every command, in this order: messages are handed out, limits kept, dead letters given to
their worker, timers set, and payloads released which nobody needs any more.
"""

from __future__ import annotations

from typing import final

from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.quorum import (
    burying,
    consuming,
    delaying,
    enqueuing,
    failing,
    settling,
    upkeep,
)
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.dispatching import dispatch, dispatch_letters
from queuelake.engine.quorum.effects import Release
from queuelake.engine.quorum.limiting import keep_limits
from queuelake.engine.quorum.sessions import node_of
from queuelake.engine.quorum.state import QuorumState


@final
class QuorumQueue(QuorumState):
    """One queue; every replica has one, and all are equal after the same commands."""

    __slots__ = ()

    def apply(self, meta: Meta, command: Command) -> tuple[r.Reply, list[Effect]]:
        """Change the state as the command says.

        Returns:
            The answer to whoever asked, and what is to be done now: all of it by the leader, a
            `LocalEffect` by every replica.
        """
        assert meta.index > self.index, f"index {meta.index} behind {self.index}"
        self.index = meta.index
        if meta.now_ms > self.now_ms:
            self.now_ms = meta.now_ms  # time never goes back, whatever the clock did
        if not self.last_active_ms:
            self.last_active_ms = self.now_ms
        self.effects = []
        self.released = []
        self.noted = []
        reply = self._gone(command) if self.deleted else self._command(command)
        if not self.deleted:
            dispatch(self)
            keep_limits(self)
            dispatch_letters(self)
            if isinstance(command, c.Credit) and reply.code == r.ACCEPTED:
                reply = consuming.credited(self, command)
            upkeep.set_timers(self)
        if self.released:
            self.released.sort()
            self.effects.append(Release(self.released))
        return reply, self.effects

    def _command(self, command: Command) -> r.Reply:
        if isinstance(command, c.Enqueue):
            return enqueuing.enqueue(self, command)
        if isinstance(command, c.Settle):
            return settling.settle(self, command)
        if isinstance(command, c.Credit):
            return consuming.credit(self, command)
        if isinstance(command, c.Return):
            return settling.give(self, command)
        if isinstance(command, c.Discard):
            return settling.discard(self, command)
        if isinstance(command, c.Modify):
            return settling.modify(self, command)
        if isinstance(command, c.Requeue):
            return settling.requeue(self, command)
        return self._session(command)

    def _session(self, command: Command) -> r.Reply:
        if isinstance(command, c.RegisterEnqueuer):
            return enqueuing.register(self, command.pid)
        if isinstance(command, c.Checkout):
            return consuming.checkout(self, command)
        if isinstance(command, c.Cancel):
            return consuming.cancel(self, command)
        if isinstance(command, c.Dequeue):
            return consuming.dequeue(self, command)
        if isinstance(command, c.AssignDeferred):
            return delaying.assign(self, command)
        if isinstance(command, c.DeadLetterSettle):
            return burying.settle(self, command)
        if isinstance(command, c.DeadLetterCheckout):
            return burying.checkout(self, command)
        if isinstance(command, c.Down):
            if command.noconnection:
                failing.disconnected(self, node_of(command.pid))
            else:
                failing.down(self, command.pid)
            return r.OK
        return self._order(command)

    def _order(self, command: Command) -> r.Reply:
        if isinstance(command, c.Purge):
            return upkeep.purge(self)
        if isinstance(command, c.DelayedRetry):
            return delaying.retry(self, command)
        if isinstance(command, c.Timeout):
            upkeep.time_out(self, command.name)
        elif isinstance(command, c.NodeUp):
            failing.node_up(self, command.node)
        elif isinstance(command, c.PurgeNodes):
            failing.purge_nodes(self, command.nodes)
        elif isinstance(command, c.UpdateConfig):
            upkeep.configure(self, command.policy)
        elif isinstance(command, c.GarbageCollection):
            upkeep.tidy(self)
        else:
            assert isinstance(command, c.Delete), f"not for a quorum queue: {command!r}"
            upkeep.delete(self)
        return r.OK

    def _gone(self, command: Command) -> r.Reply:
        """Nothing is kept of what still comes."""
        if isinstance(command, (c.Enqueue, c.Requeue)):
            self.release(self.index, command.size)
        return r.Reply(r.GONE)
