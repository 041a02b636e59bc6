"""Mailboxes as administrators see them: what the tables hold, the configuration, the figures."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from queuelake.broker.ecq.browsing import entry_page, owner_page
from queuelake.broker.ecq.garbage import Garbage, Polling
from queuelake.broker.ecq.publishing import MailboxTopics
from queuelake.broker.ecq.rewinding import target
from queuelake.broker.ecq.subscribing import MailboxSubscriptions
from queuelake.broker.ecq.topics import LEVEL
from queuelake.broker.pipeline.log_cleaning import LogCleaning
from queuelake.broker.pipeline.stats import Reading
from queuelake.broker.queues.deadletters import rfc3339
from queuelake.config_types import changes_between
from queuelake.control_ecq import (
    EMPTY,
    NONE,
    EcqEntryPage,
    EcqFigures,
    EcqInspection,
    EcqOwnerPage,
    EcqPlace,
    EcqRange,
    EcqStatus,
)
from queuelake.ecq_settings import BadEcqSettingsError, EcqConfig, read_config
from queuelake.errors import NotFoundError
from queuelake.storage import api
from queuelake.storage import ecq_tables as t

if TYPE_CHECKING:
    from queuelake.broker.clock import TimerWheel
    from queuelake.broker.delivery import Delivery
    from queuelake.broker.ecq.service import Mailboxes
    from queuelake.storage.api import ReadTransaction

log = logging.getLogger("queuelake.ecq")

CONFIG_KEY: Final = b"ecq_config"
LAST_KEY: Final = b"\xff" * 25


@final
class MailboxAdministration:
    """Puts the service in its place, and answers for it."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        delivery: Delivery,
        timers: TimerWheel,
        loop: AbstractEventLoop,
    ) -> None:
        self._mailboxes = mailboxes
        self._file_config = mailboxes.config
        self.garbage = Garbage(mailboxes, timers, loop)
        self.polling = Polling(mailboxes, timers)
        self.cleaning = LogCleaning(
            mailboxes.writes.log, mailboxes, mailboxes.runner, loop, mailboxes.queues.clock, timers
        )
        mailboxes.watch = self.polling.watch
        self._topics = MailboxTopics(mailboxes)
        delivery.services[LEVEL] = self._topics
        mailboxes.queues.receptions.append(MailboxSubscriptions(mailboxes))

    @property
    def config(self) -> EcqConfig:
        return self._mailboxes.config

    def start(self) -> None:
        """What the store has, then let time run."""
        self._mailboxes.load()
        with self._mailboxes.store.view() as view:
            value = view.get(api.META, CONFIG_KEY)
        if value is not None:
            try:
                self._use(read_config(self._file_config, msgspec.json.decode(value)))
            except BadEcqSettingsError as error:
                log.error("[ecq]: what was configured at run time does not fit any more: %s", error)
        self.garbage.start()
        self.polling.start()
        self.cleaning.start()

    def configure(self, config: EcqConfig) -> None:
        mailboxes = self._mailboxes
        former = mailboxes.config
        self._use(config)
        changes = changes_between(self._file_config, config)
        mailboxes.runner.put(api.META, CONFIG_KEY, msgspec.json.encode(changes))
        if config.gc_interval_ms != former.gc_interval_ms:
            self.garbage.reschedule()

    def _use(self, config: EcqConfig) -> None:
        self._mailboxes.use(config)
        self._topics.use(config)

    def collect_garbage(self) -> bool:
        return self.garbage.collect()

    def rewind(self, owner: str, body: bytes) -> int:
        """Let an owner read again; the position it gets.

        Raises:
            NotFoundError: nobody ever wrote to this owner.
            BadRewindError: the body does not say where to.
        """
        mailboxes = self._mailboxes
        name = _name(owner)
        if not mailboxes.writes.exists(name):
            raise NotFoundError(f"there is no mailbox of {owner!r}")
        acked = target(mailboxes.store, name, body, mailboxes.writes.last_seq(name))
        mailboxes.rewind_to(name, acked)
        return acked

    def status(self) -> EcqStatus:
        with self._mailboxes.store.view() as view:
            return EcqStatus(
                _range(view, api.ECQ_INDEX), _range(view, api.ECQ_STATE), view.count(api.ECQ_SEQNO)
            )

    def inspect(self, owner: str) -> EcqInspection:
        digest = t.digest(_name(owner))
        with self._mailboxes.store.view() as view:
            state = view.get(api.ECQ_STATE, digest)
            rows = t.read_index(view, digest, 0, 3)
            last = t.last_row(view, digest)
        queue = EMPTY
        if last is not None:
            seqs = [str(row.seq) for row in rows]
            queue = f"[{','.join(seqs)}]" if len(rows) < 3 else f"[{seqs[0]},...,{last.seq}]"
        if state is None:
            return EcqInspection(NONE, NONE, queue)
        acked, ts_ms, _ = t.read_numbers(state)
        return EcqInspection(acked, rfc3339(ts_ms) if ts_ms else NONE, queue)

    def owners(self, cursor: str, limit: int) -> EcqOwnerPage:
        with self._mailboxes.store.view() as view:
            return owner_page(view, self._mailboxes.readers, cursor, limit)

    def entries(self, owner: str, cursor: str, limit: int) -> EcqEntryPage:
        name = _name(owner)
        with self._mailboxes.store.view() as view:
            return entry_page(view, name, name in self._mailboxes.readers, cursor, limit)

    def reading(self) -> Reading:
        """For the minute. Nobody counts the bytes of what is overwritten."""
        counters = self._mailboxes.counters
        with self._mailboxes.store.view() as view:
            depth = view.count(api.ECQ_PAYLOAD)
        counts = [counters.writes, counters.delivered, counters.acked, 0, counters.rejected, 0]
        counts += [counters.dead_lettered, counters.expired, 0]
        return Reading(counts, counters.latency, depth, 0)

    def figures(self) -> EcqFigures:
        mailboxes = self._mailboxes
        counters = mailboxes.counters
        with mailboxes.store.view() as view:
            queues = view.count(api.ECQ_SEQNO)
        return EcqFigures(
            queues=queues,
            attached=len(mailboxes.readers),
            writes=counters.writes,
            write_errors_by_reason=dict(counters.write_errors),
            compacted=counters.compacted,
            delivered=counters.delivered,
            acked=counters.acked,
            rejected=counters.rejected,
            dead_lettered=counters.dead_lettered,
            expired=counters.expired,
            direct_publish_rejected=counters.direct_publish_rejected,
            polls=counters.polls,
            rewinds=counters.rewinds,
            gc_runs=counters.gc_runs,
        )


def _name(owner: str) -> bytes:
    return owner.encode("utf-8", "surrogatepass")


def _range(view: ReadTransaction, table: int) -> EcqRange | Literal["empty"]:
    first = next(iter(view.scan(table, b"", LAST_KEY)), None)
    last = view.last_below(table, LAST_KEY)
    if first is None or last is None:
        return EMPTY
    return EcqRange(_place(view, *first), _place(view, *last))


def _place(view: ReadTransaction, key: bytes, value: bytes) -> EcqPlace:
    owner = key[: t.DIGEST_BYTES]
    if len(key) == t.DIGEST_BYTES:
        seq, _, name = t.read_numbers(value)
        return EcqPlace(name.decode(), seq)
    numbers = view.get(api.ECQ_SEQNO, owner)
    name = t.read_numbers(numbers)[2] if numbers is not None else owner.hex().encode()
    return EcqPlace(name.decode(), int.from_bytes(key[t.DIGEST_BYTES :], "big"))
