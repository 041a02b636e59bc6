"""Fan-out as administrators see it: what waits, how far requests are, and calling them off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from queuelake import control_sdv as ops
from queuelake.broker.pipeline.stats import Reading
from queuelake.control_sdv import (
    SdvCancelled,
    SdvDataUsage,
    SdvFigures,
    SdvInFlight,
    SdvMemoryUsage,
    SdvPending,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.engine.kinds.fanout import (
    ACKED,
    CANCELLED,
    CAUSES,
    DROPPED,
    EXPIRED,
    REJECTED,
    Row,
)
from queuelake.errors import NotFoundError, RefusedError
from queuelake.storage import api
from queuelake.storage import sdv_tables as t

if TYPE_CHECKING:
    from queuelake.broker.fanout.service import Fanout

ROWS_PER_SLICE: Final = 5_000
VINS_PER_SLICE: Final = 500
_LAST: Final = b"\xff" * 64


def status(fanout: Fanout) -> SdvStatus:
    totals = fanout.register.totals
    data = SdvDataUsage(totals.payload_bytes, totals.meta_bytes)
    return SdvStatus(totals.pending, totals.payloads, SdvMemoryUsage(totals.index_bytes, data))


def inspect(fanout: Fanout, vin: str) -> SdvVehicle:
    limit = ops.ROWS_PER_INSPECTION_MAX
    rows = fanout.register.rows_after(t.digest(vin), b"", limit + 1)
    session = fanout.dispatcher.session(vin)
    awake = fanout.dispatcher.awake.get(vin)
    topics = fanout.dispatcher.topics
    row = awake.vehicle.in_flight if awake is not None else None
    flying = None
    if awake is not None and row is not None:
        flying = SdvInFlight(row.ts_ms, row.request_id, row.data_id, awake.vehicle.sent_ms)
    return SdvVehicle(
        vin,
        session is not None and session.connection is not None,
        session is not None and topics.subscription(session, topics.filter_of(vin)) is not None,
        flying,
        [
            SdvPending(
                one.ts_ms,
                one.request_id,
                one.data_id,
                fanout.payloads.is_stored(t.digest(one.data_id)),
            )
            for one in rows[:limit]
        ],
        len(rows) > limit,
    )


def request(fanout: Fanout, request_id: str) -> SdvRequest:
    progress = fanout.register.progress(t.digest(request_id))
    if progress is None:
        raise NotFoundError(f"request {request_id!r} is not known")
    return _shown(progress, _flying(fanout).get(request_id, 0))


def requests(fanout: Fanout, limit: int, cursor: str) -> SdvRequestPage:
    try:
        start = bytes.fromhex(cursor) + b"\0" if cursor else b""
    except ValueError:
        raise RefusedError(f"cursor is {cursor[:64]!r}, which no page ended with") from None
    with fanout.store.view() as view:
        keys = list(islice(view.scan_keys(api.SDV_REQUESTS, start, _LAST), limit + 1))
    flying = _flying(fanout)
    found = [fanout.register.progress(key) for key in keys[:limit]]
    data = [_shown(one, flying.get(one.request_id, 0)) for one in found if one is not None]
    return SdvRequestPage(data, keys[limit - 1].hex() if len(keys) > limit else None)


def reading(fanout: Fanout) -> Reading:
    """For the minute."""
    metrics, totals = fanout.metrics, fanout.register.totals
    acked, rejected, expired, cancelled, dropped = metrics.outcomes
    counts = [metrics.rows, sum(metrics.dispatched), acked, 0, rejected, 0]
    counts += [metrics.dead_lettered, expired, cancelled + dropped]
    size = totals.index_bytes + totals.payload_bytes
    return Reading(counts, metrics.latency, totals.pending, size)


def figures(fanout: Fanout) -> SdvFigures:
    metrics, totals = fanout.metrics, fanout.register.totals
    flying = _flying(fanout)
    lately = sorted(fanout.register.lately(), key=lambda one: one.ts_ms, reverse=True)
    return SdvFigures(
        pending=totals.pending,
        inflight=sum(flying.values()),
        unique_payloads=totals.payloads,
        dispatched_by_trigger=dict(zip(CAUSES, metrics.dispatched, strict=True)),
        acked=metrics.outcomes[ACKED],
        rejected=metrics.outcomes[REJECTED],
        expired=metrics.outcomes[EXPIRED],
        missing_data=metrics.missing_data,
        trigger_invalid=metrics.trigger_invalid,
        triggers=metrics.triggers,
        dropped=metrics.outcomes[DROPPED],
        dead_lettered=metrics.dead_lettered,
        gc_runs=metrics.gc_runs,
        time_to_ack_counts=list(metrics.time_to_ack.counts),
        time_to_ack_sum_s=metrics.time_to_ack.total,
        requests=[
            _shown(one, flying.get(one.request_id, 0))
            for one in lately[: ops.REQUESTS_PER_SCRAPE_MAX]
        ],
    )


def cancel(fanout: Fanout, request_id: str, vins: list[str]) -> Iterator[SdvCancelled]:
    """Delete what was not sent, a slice at a time; each yields what it did."""
    digest = t.digest(request_id)
    for at in range(0, len(vins), VINS_PER_SLICE):
        rows: list[Row] = []
        for vin in vins[at : at + VINS_PER_SLICE]:
            waiting = fanout.register.rows_after(t.digest(vin), b"", ROWS_PER_SLICE)
            while len(waiting) == ROWS_PER_SLICE:  # there may be more
                rows += [row for row in waiting if row.request_id == request_id]
                yield _cancel_rows(fanout, request_id, rows)
                rows = []
                waiting = fanout.register.rows_after(t.digest(vin), waiting[-1].key, ROWS_PER_SLICE)
            rows += [row for row in waiting if row.request_id == request_id]
        yield _cancel_rows(fanout, request_id, rows)
    if not vins:
        recent = fanout.register.recent.all_rows()
        yield _cancel_rows(
            fanout, request_id, [row for row in recent if row.request_id == request_id]
        )
    start = b"" if not vins else _LAST
    while start != _LAST:
        rows = []
        with fanout.store.view() as view:
            keys = list(islice(view.scan_keys(api.SDV_IDS, start, _LAST), ROWS_PER_SLICE))
            for key in keys:
                value = view.get(api.SDV_IDS, key) if key[24:] == digest else None
                if value is not None and fanout.register.counts(key):
                    rows.append(t.read_row(key, value))
        yield _cancel_rows(fanout, request_id, rows)
        start = keys[-1] + b"\0" if len(keys) == ROWS_PER_SLICE else _LAST


def _cancel_rows(fanout: Fanout, request_id: str, rows: list[Row]) -> SdvCancelled:
    now_ms = fanout.clock.now_ms()
    kept = 0
    for row in rows:
        if fanout.dispatcher.is_in_flight(row):
            kept += 1
        else:
            fanout.dispatcher.settle(row, CANCELLED, now_ms)
    return SdvCancelled(request_id, len(rows) - kept, kept)


def _flying(fanout: Fanout) -> dict[str, int]:
    """By request, how many rows are in flight."""
    found: dict[str, int] = {}
    for awake in fanout.dispatcher.awake.values():
        row = awake.vehicle.in_flight
        if row is not None and row.size:
            found[row.request_id] = found.get(row.request_id, 0) + 1
    return found


def _shown(progress: t.Progress, in_flight: int) -> SdvRequest:
    acked, rejected, expired, cancelled, dropped = progress.outcomes
    return SdvRequest(
        progress.request_id,
        progress.ts_ms,
        progress.triggered,
        max(0, progress.pending - in_flight),
        in_flight,
        acked,
        rejected,
        expired,
        cancelled,
        dropped,
    )
