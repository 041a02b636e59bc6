"""Events of queues on their way into the store: in the commit of the change they tell of.

A machine notes down what happens; what was collected since the last commit is one value. With
`events = "all"` there are also messages which came, were handed out and acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.participant import Participant
from queuelake.broker.runner import Runner
from queuelake.engine import events as e
from queuelake.engine.effects import Deliver
from queuelake.engine.events import Events
from queuelake.engine.machine import Effect
from queuelake.engine.state import QueueState
from queuelake.storage import api
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import Batch, Store

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


@final
class Ledger(Participant):
    """How many bytes events and minutes of all queues take. It takes part in commits only to hear
    that one has failed."""

    __slots__ = ("_runner", "bytes", "failures", "store")

    def __init__(self, store: Store, runner: Runner) -> None:
        self.waiting = False
        self.group = 0
        self.store: Store = store
        self._runner: Runner = runner
        self.bytes: int = 0
        self.failures: int = 0  # of commits: what was to be deleted is there again

    def load(self) -> None:
        with self.store.view() as view:
            self.bytes = t.read_bytes(view)

    def grow(self, size: int) -> None:
        """So much is put with the group being collected, or less than nothing deleted."""
        self.bytes += size
        self._put()
        self._runner.take_part(self)

    def _put(self) -> None:
        self._runner.put(api.META, t.BYTES_KEY, str(self.bytes).encode())

    def act(self, now_ms: int) -> None:
        """There is nothing to decide."""

    def prepare(self) -> None:
        """Nor here."""

    def write(self, batch: Batch) -> None:
        """It was put as it changed."""

    def stored(self, now_ms: int) -> None:
        """Nobody waits for it."""

    def rolled_back(self) -> None:
        self.failures += 1
        self.load()
        self._put()  # in place of what the commit which failed would have said


@final
class EventLog:
    """Of one queue. Sequences of a commit which failed are not given again."""

    __slots__ = ("_ledger", "_next", "_queue_id")

    def __init__(self, ledger: Ledger, queue_id: int) -> None:
        self._ledger: Ledger = ledger
        self._queue_id: int = queue_id
        self._next: int = 0  # nobody has had to know

    def write(self, batch: Batch, events: Events) -> None:
        if not self._next:
            with self._ledger.store.view() as view:
                self._next = t.record_range(view, api.EVENTS, self._queue_id)[1] + 1
        size = t.put_events(batch, self._queue_id, self._next, events)
        self._next += len(events)
        self._ledger.grow(size)


def note_deliveries(machine: QueueState, effects: list[Effect]) -> None:
    """What a dispatch handed out."""
    events = machine.events
    now_ms = machine.now_ms
    for effect in effects:
        if isinstance(effect, Deliver):
            entry = effect.entry
            name = effect.consumer.name
            group = effect.group.name
            events.add(e.DELIVERED, now_ms, entry.partition, entry.seq, group, name, effect.attempt)


def write_events(batch: Batch, host: HostedQueue) -> None:
    """What happened since the last commit; before the messages which came are written."""
    machine = host.machine
    events = machine.events
    if machine.policy.events == e.ALL:
        came = Events()
        for number, tail in enumerate(host.tails):
            for record in tail.pending:
                came.add(e.ENQUEUED, record.ts_ms, number, record.seq)
        if len(came):
            came.extend(events)
            events = came
    if len(events):
        host.event_log.write(batch, events)
        machine.events = Events()
