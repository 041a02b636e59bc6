"""Pages of several shards against one sorted list of everything."""

from __future__ import annotations

import bisect
import random

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.node.merging import Page, merge

NAMES = st.text("abcd", min_size=1, max_size=4)
# Each name with the shards which have it.
LISTS = st.dictionaries(NAMES, st.sets(st.integers(0, 3), min_size=1), max_size=30)


def a_page(
    known: list[str], cursor: str, limit: int, wanted: set[str], dice: random.Random
) -> Page:
    """As a broker answers: it may stop early, and may have looked at what nobody wants."""
    start = bisect.bisect_right(known, cursor) if cursor else 0
    looked = known[start : start + dice.randint(1, 6)]
    found: list[str] = []
    for place, name in enumerate(looked):
        if name in wanted:
            found.append(name)
        if len(found) == limit:
            looked = looked[: place + 1]
            break
    more = start + len(looked) < len(known)
    return Page(found, looked[-1] if more else None)


@given(LISTS, st.integers(1, 7), st.sets(NAMES), st.integers())
def test_pages_of_shards_have_together_what_one_list_has(
    shards_by_name: dict[str, set[int]], limit: int, unwanted: set[str], seed: int
) -> None:
    dice = random.Random(seed)
    lists = [sorted(n for n, there in shards_by_name.items() if at in there) for at in range(4)]
    wanted = shards_by_name.keys() - unwanted
    found: list[dict[int, str]] = []
    cursor, former = "", ""
    while True:
        pages = [a_page(known, cursor, limit, wanted, dice) for known in lists]
        merged = merge(pages, limit, str, str, str)
        assert len(merged.items) <= limit
        found += merged.items
        if merged.next is None:
            break
        former, cursor = cursor, merged.next
        assert cursor > former
    assert [next(iter(one.values())) for one in found] == sorted(wanted)
    for one in found:
        (name,) = set(one.values())
        assert one.keys() == shards_by_name[name]


def test_a_full_page_ends_with_its_last_item_and_a_short_one_where_the_first_shard_stopped() -> (
    None
):
    pages = [Page(["a", "d"], "d"), Page(["b", "c"], "c"), Page([], None)]
    assert merge(pages, 2, str, str, str) == ([{0: "a"}, {1: "b"}], "b")
    assert merge(pages, 9, str, str, str) == ([{0: "a"}, {1: "b"}, {1: "c"}], "c")
    assert merge([Page(["a"], None), Page([], None)], 1, str, str, str) == ([{0: "a"}], None)
