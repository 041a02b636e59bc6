"""Pages of several shards as one: the lists of brokers which are sorted in the same way. Pure.

Every shard is asked for what comes after the same cursor. Each answers with all it has up to some
place; what is known for certain ends at the first of these places, and there the page ends too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Key = Any  # of one kind for all items of a list, and sorted as the list is


class Page(NamedTuple):
    """What one shard has; `next` is the cursor up to which this is all, None: to the end."""

    items: Sequence[Any]
    next: str | None


class Merged(NamedTuple):
    """`items`: for each key, which shard has what."""

    items: list[dict[int, Any]]
    next: str | None


def merge(
    pages: Sequence[Page],
    limit: int,
    key: Callable[[Any], Key],
    place: Callable[[str], Key],
    cursor: Callable[[Any], str],
) -> Merged:
    """One page of at most `limit` keys; the number of a page is that of its shard.

    `key` says where an item is in the order, `place` the same of a cursor, and `cursor` names the
    place of an item.
    """
    ends = [page.next for page in pages if page.next is not None]
    end = min(ends, key=place, default=None)
    found: dict[Key, dict[int, Any]] = {}
    for shard, page in enumerate(pages):
        for item in page.items:
            found.setdefault(key(item), {})[shard] = item
    certain = sorted(found) if end is None else sorted([one for one in found if one <= place(end)])
    if len(certain) > limit:
        last = found[certain[limit - 1]]
        end = cursor(next(iter(last.values())))
    return Merged([found[one] for one in certain[:limit]], end)
