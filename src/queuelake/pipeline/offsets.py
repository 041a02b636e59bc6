"""Places in tables as Spark keeps them, and the arithmetic on them. Pure: tested without Spark.

An offset is `{queue id: {shard: upto}}`: everything up to there was read. Spark compares offsets as
JSON text, so they are always made in sorted order. A shard nobody has read is at 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuelake.errors import RefusedError

if TYPE_CHECKING:
    from queuelake.flight import Shard

Offsets = dict[str, dict[str, int]]
ShardKey = tuple[str, int]


class Slice(NamedTuple):
    """Sequences (after, upto] of one shard: what one task reads."""

    queue_id: str
    shard: int
    after: int
    upto: int


class Position(NamedTuple):
    """A place as users say it: a word, a time, or a place for some shards."""

    word: str = ""  # earliest, latest
    ts_ms: int | None = None
    exact: dict[str, dict[str, int]] = {}


EARLIEST = Position("earliest")
LATEST = Position("latest")


def parse_position(option: str, text: str) -> Position:
    """Read `earliest`, `latest`, a timestamp or JSON.

    Raises:
        RefusedError: naming the option, what it says and what it may say.
    """
    said = text.strip()
    if said.lower() in ("earliest", "latest"):
        return Position(said.lower())
    if said.isdecimal():
        return Position(ts_ms=int(said))
    if said.startswith("{"):
        return Position(exact=_parse_exact(option, said))
    try:
        when = datetime.fromisoformat(said)
    except ValueError:
        raise RefusedError(
            f"option {option!r}: {text!r} is not earliest, latest, a time (2026-01-31T12:00:00Z or "
            "milliseconds since 1970) or JSON {queue: {shard: sequence}}"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return Position(ts_ms=int(when.timestamp() * 1000))


def _parse_exact(option: str, text: str) -> dict[str, dict[str, int]]:
    try:
        tree: Any = json.loads(text)
    except ValueError as error:
        raise RefusedError(f"option {option!r}: {text!r} is not JSON: {error}") from None
    for queue, shards in tree.items():
        if not isinstance(shards, dict):
            raise RefusedError(f"option {option!r}: {queue!r} needs {{shard: sequence}}")
        for shard, upto in shards.items():
            whole = isinstance(upto, int) and not isinstance(upto, bool) and upto >= 0
            if not (whole and shard.isdecimal()):
                words = f"shard {shard!r} of {queue!r}: {upto!r}"
                raise RefusedError(f"option {option!r}: {words} is not a sequence, 0 or more")
    found: dict[str, dict[str, int]] = tree
    return found


def resolve(
    option: str,
    position: Position,
    shards: list[Shard],
    shards_at: Callable[[int], list[Shard]],
    otherwise: str,
) -> Offsets:
    """The place in each shard; `otherwise` (earliest, latest) for those JSON does not name."""
    if position.ts_ms is not None:
        return begins_of(shards_at(position.ts_ms))
    word = position.word or otherwise
    places = begins_of(shards) if word == "earliest" else ends_of(shards)
    ids = {shard.queue: shard.queue_id for shard in shards}
    for queue, named in position.exact.items():
        queue_id = ids.get(queue, queue)
        parts = {shard.queue_id for shard in shards if shard.queue == queue}
        if len(stores_of(parts)) > 1:
            words = f"{queue!r} is in several parts of the cluster; name their ids instead"
            raise RefusedError(f"option {option!r}: {words}: {', '.join(sorted(parts))}")
        for shard, upto in named.items():
            if shard not in places.get(queue_id, {}):
                raise RefusedError(f"option {option!r}: there is no shard {shard!r} of {queue!r}")
            places[queue_id][shard] = upto
    return places


def begins_of(shards: Iterable[Shard]) -> Offsets:
    return _offsets({(shard.queue_id, shard.shard): shard.after for shard in shards})


def ends_of(shards: Iterable[Shard]) -> Offsets:
    return _offsets({(shard.queue_id, shard.shard): shard.upto for shard in shards})


def place(offsets: Mapping[str, Mapping[str, int]], key: ShardKey) -> int:
    return offsets.get(key[0], {}).get(str(key[1]), 0)


def stores_of(queue_ids: Iterable[str]) -> set[str]:
    """Which stores these queues are in: an id is `{store}-{number}`."""
    return {queue_id.rpartition("-")[0] for queue_id in queue_ids}


def merged(choose: Callable[[int, int], int], one: Offsets, other: Offsets) -> Offsets:
    """In each shard of `one` the later (`max`) or earlier (`min`) of two places."""
    return _offsets({key: choose(upto, place(other, key)) for key, upto in flat(one).items()})


def plan_end(start: Offsets, begins: Offsets, ends: Offsets, budget: int | None) -> Offsets:
    """Where a batch ends which takes at most `budget` sequences, an equal share of every shard.

    Shards which need less than their share leave it to the others. An end never lies before its
    start. Queues which are not in `ends` any more are left out.
    """
    wanted: dict[ShardKey, int] = {}
    bases: dict[ShardKey, int] = {}
    for key, end in flat(ends).items():
        bases[key] = max(place(start, key), min(place(begins, key), end))
        wanted[key] = max(0, end - bases[key])
    granted = wanted if budget is None else share(wanted, budget)
    # A shard which gets nothing now stays where it was, before what is gone from it.
    return _offsets(
        {
            key: bases[key] + granted[key] if granted[key] or not wanted[key] else place(start, key)
            for key in wanted
        }
    )


def share(wanted: Mapping[ShardKey, int], budget: int) -> dict[ShardKey, int]:
    """Divide `budget`: nobody gets more than it wants, and nobody less than the others without
    reason. What cannot be divided goes to those who want most."""
    granted = dict.fromkeys(wanted, 0)
    left = budget
    by_need = sorted(wanted, key=lambda key: (wanted[key], key))
    for number, key in enumerate(by_need):
        granted[key] = min(wanted[key], left // (len(by_need) - number))
        left -= granted[key]
    return granted


def slices(start: Offsets, begins: Offsets, end: Offsets, rows_max: int) -> list[Slice]:
    """What tasks read: the range of each shard, without what is gone, cut at `rows_max`."""
    found: list[Slice] = []
    for key, upto in flat(end).items():
        after = max(place(start, key), place(begins, key))
        while after < upto:
            cut = min(upto, after + rows_max)
            found.append(Slice(*key, after, cut))
            after = cut
    return found


def lost_between(
    shards: Iterable[Shard], start: Offsets, end: Offsets
) -> list[tuple[Shard, Slice]]:
    """What was promised to be kept, lies in this range and is not there any more."""
    found: list[tuple[Shard, Slice]] = []
    for shard in shards:
        key = (shard.queue_id, shard.shard)
        first, last = place(start, key), place(end, key)
        for after, upto in shard.lost:
            gone = Slice(*key, max(after, first), min(upto, last))
            if gone.after < gone.upto:
                found.append((shard, gone))
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[ShardKey, int]:
    return {
        (queue, int(shard)): n for queue, places in offsets.items() for shard, n in places.items()
    }


def _offsets(places: Mapping[ShardKey, int]) -> Offsets:
    found: Offsets = {}
    for queue_id, shard in sorted(places):
        found.setdefault(queue_id, {})[str(shard)] = places[queue_id, shard]
    return found
