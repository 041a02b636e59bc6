"""Triggers become rows, a slice in each commit, so that nobody else waits for a hundred thousand.

One trigger is stored after the other. First all of it is read, so that nothing is stored of one
which is wrong. Its rows are seen when the last slice is durable, all at once. What a policy drops
for them is dropped after that: whatever happens on the way, a vehicle has the older row or the
newer, or for a moment both. Then the publisher is answered, and vehicles which are connected are
looked for, again in slices.

When the commit of a slice fails the trigger is given up and its publisher disconnected. Slices
which are durable by then stay hidden, and garbage collection deletes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.fanout.dispatch import Dispatcher
from queuelake.broker.fanout.dropping import Dropping
from queuelake.broker.fanout.job import CALLING, DROPPING, PUTTING, READING, Job
from queuelake.broker.fanout.metrics import FanoutMetrics
from queuelake.broker.fanout.register import Register
from queuelake.broker.fanout.trigger import Trigger
from queuelake.broker.fanout.vehicles import BUCKETS, TriggerVehicles, Vehicle, Vehicles
from queuelake.broker.inbound import complete
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session
from queuelake.broker.slices import Neighbours
from queuelake.engine.kinds.fanout import BATCH
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from queuelake.storage.log_tables import open_trigger

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection
    from queuelake.broker.participant import Participant

ROWS_PER_SLICE: Final = 500  # a commit with more would hold up whoever waits for none, too
ROWS_PER_TURN: Final = 125  # of a slice: nobody waits for more at once
ROWS_PER_SLICE_SHARED: Final = 125  # while others are served, too
BULK: Final = 8  # times as many where a million is usual
PARTS_PER_SLICE: Final = 4  # of a trigger; vehicles are called

APPEND: Final = 0
REPLACE: Final = 1
IGNORE: Final = 2


@final
class Storing:
    """The line of triggers."""

    __slots__ = (
        "_by_client",
        "_dispatcher",
        "_job",
        "_line",
        "_log",
        "_metrics",
        "_neighbours",
        "_participant",
        "_refuse",
        "_register",
        "_runner",
        "_want",
        "pending_max",
        "rows_per_slice",
        "same_request",
    )

    def __init__(
        self,
        participant: Participant,
        by_client: dict[str, Session],
        runner: Runner,
        register: Register,
        log: WriteLog,
        dispatcher: Dispatcher,
        metrics: FanoutMetrics,
        want: Callable[[str, int], None],
        refuse: Callable[[Connection | None, RefusedError], None],
    ) -> None:
        self._participant: Participant = participant
        self._by_client: dict[str, Session] = by_client
        self._runner: Runner = runner
        self._register: Register = register
        self._log: WriteLog = log
        self._dispatcher: Dispatcher = dispatcher
        self._metrics: FanoutMetrics = metrics
        self._want: Callable[[str, int], None] = want
        self._refuse: Callable[[Connection | None, RefusedError], None] = refuse
        self._neighbours: Neighbours = Neighbours(runner.pace)
        self._line: deque[Job] = deque()
        self._job: Job | None = None
        self.rows_per_slice: int = ROWS_PER_SLICE
        self.same_request: int = APPEND
        self.pending_max: int = 0

    def add(self, trigger: Trigger, now_ms: int, connection: Connection | None) -> Job:
        vehicles = TriggerVehicles(trigger, self._by_client)
        job = Job(vehicles, trigger.request_id, trigger.data_id, now_ms, connection)
        self._add(job)
        return job

    def add_in_bulk(
        self,
        vehicles: Vehicles,
        request_id: str,
        data_id: str,
        now_ms: int,
        record: Callable[[int], None],
        answer: Callable[[bool], None],
    ) -> None:
        """A trigger nobody published; `Job` says what the last two are."""
        job = Job(vehicles, request_id, data_id, now_ms, None)
        job.record = record
        job.answer = answer
        self._add(job)

    def _add(self, job: Job) -> None:
        job.ts_ms = self._register.new_time(job.ts_ms)
        self._register.hidden.add(job.ts_ms)
        self._line.append(job)
        self._runner.want_turn(self._participant)

    def is_storing(self, ts_ms: int) -> bool:
        """Whether the trigger of this time is under way; the rows of others which are hidden are
        nobody's."""
        if self._job is not None and self._job.ts_ms == ts_ms:
            return True
        return any([job.ts_ms == ts_ms for job in self._line])

    def uses(self, data_id: str) -> bool:
        """Whether a trigger under way is about this data."""
        if self._job is not None and self._job.data_id == data_id:
            return True
        return any([job.data_id == data_id for job in self._line])

    def act(self, now_ms: int) -> None:
        """One slice; the next one is put when it is durable."""
        if self._job is None and self._line:
            self._job = self._line.popleft()
        job = self._job
        if job is None:
            return
        if job.stage == PUTTING:
            self._look_for_others(job)
            if not job.is_last and job.group == 0 and not self._gives_way(job):
                self._fill_slice(job)
            return
        if job.stage == READING:
            self._read(job)
        elif job.stage == DROPPING:
            self._drop(job, now_ms)
        else:
            self._call(job)
        if self._job is not None or self._line:
            self._act_again()

    def _act_again(self) -> None:
        """Between commits: their thread needs the interpreter for each row, and beside a loop which
        never rests it would wait for every one of them."""
        self._runner.after_sealed(lambda: self._runner.want_turn(self._participant))

    def _look_for_others(self, job: Job) -> None:
        if self._neighbours.are_active() or self._runner.group.answers:
            job.is_shared = True

    def _gives_way(self, job: Job) -> bool:
        """Others who wait for an answer get a commit of their own between two slices."""
        if not job.gave_way and self._runner.group.answers:
            job.is_giving_way = job.gave_way = True
            self._runner.after_durable(lambda: self._go_on(job))
        return job.is_giving_way

    def _go_on(self, job: Job) -> None:
        job.is_giving_way = False
        self._runner.want_turn(self._participant)

    def _read(self, job: Job) -> None:
        try:
            if not job.vehicles.read():
                job.stage = PUTTING
                self._neighbours.are_active()  # its own publisher was until now
        except RefusedError as error:
            self._job = None
            self._register.hidden.discard(job.ts_ms)
            self._refuse(job.connection, error)

    def _fill_slice(self, job: Job) -> None:
        """Some more rows of a slice; it is put when it has all."""
        ignores = self.same_request == IGNORE
        head = t.row_value_head(job.request_id, job.data_id)
        stamp = t.time_key(job.ts_ms) + job.request
        rows = job.rows
        online, recent = job.vehicles.online(), self._register.recent
        left = self._rows_left(job)
        for vehicle, name in self._next_vehicles(job, max(0, min(left, ROWS_PER_TURN))):
            if ignores and self._register.has_request(vehicle, job.request):
                continue
            if vehicle in online and recent.has_room():
                job.bytes += recent.add(vehicle, name, job.ts_ms, job.request_id, job.data_id)
                job.recent += 1
            else:
                rows[vehicle + stamp] = head + name
                job.bytes += t.ROW_KEY_BYTES + len(head) + len(name)
        if left > ROWS_PER_TURN and self._has_more(job):
            self._act_again()
        else:
            self._put_slice(job)

    def _put_slice(self, job: Job) -> None:
        group = self._runner.group
        group.batch.tables[api.SDV_IDS].update(job.rows)
        if job.rows:
            job.are_recent = False
        for key in job.rows:
            self._log.add(key)
        self._register.recent.put()
        group.bytes += job.bytes
        job.count += len(job.rows) + job.recent
        job.size += job.bytes
        job.rows = {}
        job.recent = job.bytes = 0
        job.group = self._runner.number
        job.gave_way = job.is_shared = False
        self._mark(job)
        self._runner.take_part(self._participant)

    def _rows_left(self, job: Job) -> int:
        """Of this slice: fewer while others are served, but for recent ones, which share pages."""
        times = BULK if job.record is not None else 1
        left = self.rows_per_slice * times - len(job.rows) - job.recent
        return min(left, ROWS_PER_SLICE_SHARED * times - len(job.rows)) if job.is_shared else left

    def _next_vehicles(self, job: Job, limit: int) -> list[Vehicle]:
        line = job.line
        while job.at < BUCKETS and len(line) < limit:
            line += job.vehicles.take(job.at)
            job.at += 1
        job.line = line[limit:]
        return line[:limit]

    def _has_more(self, job: Job) -> bool:
        return len(job.line) > 0 or job.vehicles.has_more(job.at)

    def _mark(self, job: Job) -> None:
        """Say in the store whether more is to come."""
        batch = self._runner.group.batch
        key = t.time_key(job.ts_ms)
        if self._has_more(job):
            if job.slices == 0:
                batch.put(api.SDV_TRIGGERS, key, open_trigger(self._log.state))
            return
        job.is_last = True
        job.at = 0
        if job.slices:
            batch.delete(api.SDV_TRIGGERS, key)
        self._register.trigger(job.request_id, job.data_id, job.ts_ms, job.count, job.size)
        if job.record is not None:
            job.record(job.count)

    # When all rows are there

    def _drop(self, job: Job, now_ms: int) -> None:
        """What has to go for the new rows."""
        if self.same_request == REPLACE or self.pending_max:
            if job.drops is None:
                dropping = Dropping(self._register, self._dispatcher, job.request_id, job.ts_ms)
                dropping.replaces = self.same_request == REPLACE
                dropping.pending_max = self.pending_max
                job.drops = dropping.drop_for(job.vehicles, now_ms)
            if next(job.drops, False):
                return
        job.drops = None
        job.stage = CALLING
        connection = job.connection
        job.connection = None
        if job.answer is not None:
            job.answer(True)
        if connection is not None:
            complete(connection)

    def _call(self, job: Job) -> None:
        """Vehicles which are connected get what they can."""
        vehicles = job.vehicles
        for part in range(job.at, min(job.at + PARTS_PER_SLICE, vehicles.parts())):
            for vin in vehicles.names(part):
                session = self._by_client.get(vin)
                if session is not None and session.connection is not None:
                    self._want(vin, BATCH)
            vehicles.forget(part)  # it takes a while to forget them all
        job.at += PARTS_PER_SLICE
        if job.at >= vehicles.parts():
            self._job = None

    # Commits

    def stored(self) -> None:
        job = self._job
        if job is None or job.stage != PUTTING or job.group > self._runner.durable:
            return
        if job.group:
            job.group = 0
            job.slices += 1
        if job.is_last:
            job.stage = DROPPING
            self._register.reveal(job.ts_ms, job.are_recent)
            self._metrics.triggers += 1
            self._metrics.rows += job.count
        self._runner.want_turn(self._participant)

    def rolled_back(self) -> None:
        job = self._job
        if job is None or job.stage != PUTTING or job.group <= self._runner.durable:
            return
        self._job = None
        if job.is_last:
            self._register.take_back(job.request_id, job.data_id, job.count, job.size)
        if job.slices:
            self._register.give_up(job.ts_ms)
        else:
            self._register.hidden.discard(job.ts_ms)
        if job.connection is not None:
            job.connection.close(reasons.UNSPECIFIED_ERROR, "the trigger could not be stored")
        if job.answer is not None:
            job.answer(False)
        self._runner.want_turn(self._participant)
