"""What the broker knows of the archive: how far the lake has each queue, and what waits for it.

1. A queue with `archive = true` deletes nothing the lake does not have, whoever asked for it:
   settlement, expiry, purge, retention, compaction. Only deleting the queue ends the promise.
2. The lake tells marks; they only ever rise, and count from the commit they are stored with.
3. All queues together hold at most `lake.archive_hold_bytes_max`. Over it publishes to archived
   queues are refused, or with `hold = "drop"` the oldest of what is held goes, and the range which
   was lost is stored in the commit which deletes it.
4. What is held is counted by chunks, and again after a start, as queues wake: see `holding`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from queuelake import names
from queuelake.broker.pipeline.holding import Holding, Shard
from queuelake.control_pipeline import QueueFlags
from queuelake.errors import RefusedError
from queuelake.flight import ArchivedTold, Mark, PayloadSchema
from queuelake.storage import api, queue_records
from queuelake.storage import archive_tables as a
from queuelake.storage import queue_tables as t
from queuelake.tables import ECQ_QUEUE_ID, LOG_SHARDS, SDV_QUEUE_ID, Table

if TYPE_CHECKING:
    from queuelake.broker.queues.durable import DurableHost
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.queues.upkeep import QueueUpkeep
    from queuelake.queue_settings import QueueSettings
    from queuelake.settings import Lake
    from queuelake.storage.api import ReadTransaction

log = logging.getLogger("queuelake.archive")

STORE_ID: Final = b"store_id"  # in META
WATCH_EVERY_MS: Final = 1_000
ALARM_SHARE: Final = 0.8
CALM_SHARE: Final = 0.7  # below it the next alarm is logged again
LOGS: Final = (ECQ_QUEUE_ID, SDV_QUEUE_ID)


class AnotherLakeError(RefusedError):
    """Marks of another table than the one known so far: adopt it, or look where it comes from."""

    http_status = 409
    code = "CONFLICT"


@final
class Archive:
    """The archive of one broker."""

    def __init__(self, queues: Queues, settings: Lake) -> None:
        self._queues = queues
        self.settings = settings
        self.held_bytes = 0
        self.told_ms = 0  # when the lake last said what it has
        self.lost = 0  # messages which were promised and are gone
        self.holdings: dict[int, Holding] = {}  # awake, or with something the lake does not have
        self.flags: dict[int, QueueFlags] = {}  # of queues for which something is set
        # Told when the lake has events or stats: table, queue id, up to where.
        self.on_archived: Callable[[Table, int, int], None] | None = None
        self._store_id = ""
        self._lakes: dict[Table, str] = {}
        self._storing: dict[bytes, a.Archived] = {}  # rows which are on their way to the store
        self._upkeep: QueueUpkeep | None = None
        self._alarmed = False
        self.told_ms = 0  # when the lake told last what it has of the messages

    def load(self) -> None:
        with self._queues.store.view() as view:
            self._store_id = (view.get(api.META, STORE_ID) or b"").decode()
            for table in a.TABLES:
                self._lakes[table] = a.current_lake(view, table)

    def start(self, upkeep: QueueUpkeep) -> None:
        self._upkeep = upkeep
        self._watch(self._queues.clock.now_ms())

    # Which queues

    def note(self, queue_id: int, settings: QueueSettings) -> None:
        """The settings of a queue are these now."""
        schema = None
        if settings.schema.format:
            schema = PayloadSchema(settings.schema.format, settings.schema.ddl)
        if settings.archive or schema is not None:
            self.flags[queue_id] = QueueFlags(queue_id, settings.archive, schema)
        else:
            self.flags.pop(queue_id, None)

    def attach(self, host: DurableHost) -> None:
        """A queue is awake, or has other settings: what it holds counts from now on."""
        if host.ephemeral:
            return
        promises = host.settings.archive
        holding = self.holdings.get(host.id)
        with self._queues.store.view() as view:
            if holding is None:
                if not promises and not a.has_marks(view, "messages", host.id):
                    return
                holding = Holding(host.id, host.name, promises, self._grown)
                self.holdings[host.id] = holding
            for number in range(len(holding.shards), len(host.machine.partitions)):
                holding.shards.append(Shard(self._row(view, "messages", host.id, number)))
        if promises != holding.promises:
            holding.promises = promises
            holding.recount()
        holding.host = host
        host.hold = holding

    def asleep(self, host: DurableHost) -> None:
        holding = host.hold
        if holding is not None:
            holding.lasts = holding.upto()
            holding.host = None
            if not holding.lag() and not holding.bytes():
                del self.holdings[host.id]

    def unarchived(self, host: DurableHost) -> int:
        """How many messages the lake will never have if the queue is deleted now."""
        return host.hold.lag() if host.hold is not None else 0

    def forget(self, host: DurableHost) -> None:
        """The queue is deleted, and with it the promise."""
        lost = self.unarchived(host)
        if lost:
            self.lost += lost
            address = names.address(host.name)
            log.warning("%s was deleted with %d messages which were not archived", address, lost)
        self.flags.pop(host.id, None)
        holding = self.holdings.pop(host.id, None)
        if holding is not None:
            holding.host = None
            holding.recount()
        self._forget_marks(host.id)

    def _forget_marks(self, queue_id: int) -> None:
        runner = self._queues.runner
        with self._queues.store.view() as view:
            a.forget_marks(runner.group.batch, view, queue_id)
        for key in [key for key in self._storing if key[1:9] == t.queue_key(queue_id)]:
            del self._storing[key]
            runner.delete(api.ARCHIVED, key)
        runner.if_failed(lambda: self._forget_marks(queue_id))

    # Marks

    def queue_id(self, number: int) -> str:
        """How a queue is known outside of this store."""
        return f"{self._store_id}-{number}"

    def told(self, told: ArchivedTold) -> None:
        """The lake has this much; it counts with the commit of the group being collected.

        Raises:
            RefusedError: the marks are not about this store, its queues, or the lake it knows.
        """
        table = told.table
        known = self._lakes[table]
        if not told.lake:
            raise RefusedError("lake is empty, may be the id of a Delta table")
        if known and known != told.lake and not told.adopt:
            raise AnotherLakeError(
                f"the archive of {table} is Delta table {known}, not {told.lake}; "
                "adopt it if the former does not count any more"
            )
        with self._queues.store.view() as view:
            marks = [self._place(view, table, mark) for mark in told.marks]
            if known != told.lake:
                self._adopt(table, told.lake)
            rows: dict[bytes, a.Archived] = {}
            for number, shard, upto in [mark for mark in marks if mark is not None]:
                row = self._row(view, table, number, shard)
                if upto > row.upto:
                    key = a.archived_key(table, number, shard)
                    rows[key] = a.Archived(upto, told.lake, row.lost)
                    self._raised(table, number, shard, upto)
        self._write(rows)
        if table == "messages":
            self.told_ms = self._queues.clock.now_ms()
            self._free({mark[0] for mark in marks if mark is not None})

    def _place(
        self, view: ReadTransaction, table: Table, mark: Mark
    ) -> tuple[int, int, int] | None:
        """Queue, shard and sequence of a mark; None: the queue is not there any more."""
        store_id, _, digits = mark.queue_id.rpartition("-")
        if store_id != self._store_id or not digits.isascii() or not digits.isdigit():
            raise RefusedError(f"queue id {mark.queue_id!r} is none of store {self._store_id!r}")
        number = int(digits)
        shards = LOG_SHARDS
        if number not in LOGS:
            value = view.get(api.QUEUES, t.queue_key(number)) if number < 1 << 63 else None
            if value is None:
                self._recorded(table, number, mark.upto)
                return None
            shards = queue_records.decode_queue(value).partitions
        if not 0 <= mark.shard < shards:
            raise RefusedError(
                f"shard of {mark.queue_id} is {mark.shard}, may be 0 to {shards - 1}"
            )
        flags = self.flags.get(number)
        if table == "messages" and flags is not None and flags.archive:
            last = self._last(view, number, mark.shard)
            if mark.upto > last:
                raise RefusedError(
                    f"mark of {mark.queue_id} shard {mark.shard} is {mark.upto}, "
                    f"its last sequence is {last}"
                )
        return number, mark.shard, mark.upto

    def _last(self, view: ReadTransaction, queue_id: int, shard: int) -> int:
        holding = self.holdings.get(queue_id)
        if holding is not None and shard < len(holding.upto()):
            return holding.upto()[shard]
        value = view.get(api.PARTITIONS, t.partition_key(queue_id, shard))
        last = t.read_partition_state(value)[1] if value is not None else 0
        return max(last, t.last_sequence(view, queue_id, shard))

    def _row(self, view: ReadTransaction, table: Table, queue_id: int, shard: int) -> a.Archived:
        holding = self.holdings.get(queue_id)
        if table == "messages" and holding is not None and shard < len(holding.shards):
            held = holding.shards[shard]
            return a.Archived(held.mark, self._lakes[table], held.lost)
        storing = self._storing.get(a.archived_key(table, queue_id, shard))
        if storing is None:
            return a.read_archived(view, table, queue_id, shard)
        upto = storing.upto if storing.lake == self._lakes[table] else 0
        return a.Archived(upto, storing.lake, storing.lost)

    def _adopt(self, table: Table, lake: str) -> None:
        """From now on marks are about this table; those of another say nothing."""
        self._lakes[table] = lake
        self._queues.runner.put(api.META, a.lake_key(table), lake.encode())
        if table == "messages":
            for holding in self.holdings.values():
                for shard in holding.shards:
                    shard.mark = 0
                holding.recount()

    def _recorded(self, table: Table, queue_id: int, upto: int) -> None:
        """Events or minutes; those of a queue which is deleted are kept for the lake, too."""
        if table != "messages" and self.on_archived is not None:
            self.on_archived(table, queue_id, upto)

    def _raised(self, table: Table, queue_id: int, shard: int, upto: int) -> None:
        holding = self.holdings.get(queue_id)
        if table != "messages":
            self._recorded(table, queue_id, upto)
        elif holding is not None and shard < len(holding.shards):
            holding.raise_mark(shard, upto)

    def _write(self, rows: dict[bytes, a.Archived]) -> None:
        if not rows:
            return
        runner = self._queues.runner
        for key, row in rows.items():
            self._storing[key] = row
            runner.put(api.ARCHIVED, key, a.archived_value(row))
        runner.if_failed(lambda: self._write(rows))
        runner.after_durable(lambda: self._stored(rows))

    def _stored(self, rows: dict[bytes, a.Archived]) -> None:
        for key, row in rows.items():
            if self._storing.get(key) is row:
                del self._storing[key]

    def _free(self, queue_ids: set[int]) -> None:
        """Their floors are higher: those awake delete at once, sleepers wake for it in turn."""
        for queue_id in queue_ids:
            holding = self.holdings.get(queue_id)
            if holding is None:
                continue
            if holding.host is not None:
                holding.host.tidy()
            elif self._upkeep is not None:
                self._upkeep.wake_soon(holding.name)

    # How much is held

    def alarm(self) -> bool:
        limit = self.settings.archive_hold_bytes_max
        return self.held_bytes > 0 and self.held_bytes >= ALARM_SHARE * limit

    def problem(self, address: str) -> str:
        """Why an archived queue takes no messages now."""
        return (
            f"queue {address!r} is archived, and queues hold {self.held_bytes} bytes for the "
            f"archive of lake.archive_hold_bytes_max = {self.settings.archive_hold_bytes_max}; "
            "run `queuelake pipeline archive`, or raise the limit"
        )

    def _grown(self, size: int) -> None:
        self.held_bytes += size
        is_over = self.held_bytes > self.settings.archive_hold_bytes_max
        self._queues.hold_full = is_over and self.settings.hold == "reject"

    def _watch(self, now_ms: int) -> None:
        assert self._upkeep is not None
        self._upkeep.timers.arm(now_ms + WATCH_EVERY_MS, self._watch)
        limit = self.settings.archive_hold_bytes_max
        if self.alarm() and not self._alarmed:
            self._alarmed = True
            log.warning(
                "queues hold %d bytes for the archive, lake.archive_hold_bytes_max is %d, then: %s",
                *(self.held_bytes, limit, self.settings.hold),
            )
        elif self.held_bytes < CALM_SHARE * limit:
            self._alarmed = False
        if self.settings.hold == "drop" and self.held_bytes > limit:
            self._give_up(limit)

    def _give_up(self, limit: int) -> None:
        """The oldest of what is held goes, of whichever queue it is."""
        heads = [
            (shard.spans[0][2], holding.queue_id, number)
            for holding in self.holdings.values()
            for number, shard in enumerate(holding.shards)
            if shard.spans
        ]
        heapq.heapify(heads)
        rows: dict[bytes, a.Archived] = {}
        lost: dict[int, int] = {}
        while heads and self.held_bytes > limit:
            _, queue_id, number = heads[0]
            shard = self.holdings[queue_id].shards[number]
            count, size = shard.give_up()
            lost[queue_id] = lost.get(queue_id, 0) + count
            self._grown(-size)
            row = a.Archived(shard.mark, self._lakes["messages"], shard.lost)
            rows[a.archived_key("messages", queue_id, number)] = row
            if shard.spans:
                heapq.heapreplace(heads, (shard.spans[0][2], queue_id, number))
            else:
                heapq.heappop(heads)
        self._write(rows)
        self._free(set(lost))
        for queue_id, count in lost.items():
            self.lost += count
            address = names.address(self.holdings[queue_id].name)
            log.error("%s: %d messages are lost, they were not archived in time", address, count)
