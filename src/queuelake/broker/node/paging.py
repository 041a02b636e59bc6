"""Lists of a cluster with several shards: how each is sorted, and what its pages are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from queuelake.broker.message_queue_operations import cursor_of, read_cursor
from queuelake.broker.node.asking import Args, Brokers, is_missing
from queuelake.broker.node.merging import Key, Page, merge
from queuelake.broker.node.summing import total
from queuelake.broker.operation import page_limit
from queuelake.control import ClientInfo, ClientPage
from queuelake.control_admin import RetainedInfo, RetainedPage, SubscriptionPage
from queuelake.control_ecq import EcqOwnerPage
from queuelake.control_mq import QUEUES_PER_PAGE_MAX, MqPage, MqPageMeta
from queuelake.control_queues import (
    PAGE_PAYLOAD_BYTES_MAX,
    ConsumerPage,
    DeadLetterPage,
    MessagePage,
    QueuePage,
)
from queuelake.control_sdv import SdvRequestPage
from queuelake.errors import QueuelakeError, RefusedError
from queuelake.placing import Placing
from queuelake.storage import ecq_tables, sdv_tables
from queuelake.storage.records import retained_key


class Sorted(NamedTuple):
    """A list which brokers keep sorted: see `merging.merge` for the three functions."""

    kind: type[Any]  # of a page, whose first two fields are its items and its next cursor
    key: Callable[[Any], Key]
    cursor: Callable[[Any], str]
    place: Callable[[str], Key] = str
    # What several shards have of one item, by shard, as one; None: it is none.
    join: Callable[[Placing, dict[int, Any]], Any] = lambda _, found: total([*found.values()])


def _first(_: Placing, found: dict[int, Any]) -> Any:
    """Each shard has the same."""
    return next(iter(found.values()))


def client(placing: Placing, found: dict[int, ClientInfo]) -> ClientInfo | None:
    """A client is there when its home knows it; what waits for it may wait anywhere."""
    home = placing.of(next(iter(found.values())).client_id.encode())
    if home not in found:
        return None
    return total([found[home], *[one for shard, one in found.items() if shard != home]])


def _pair(cursor: str) -> tuple[str, str]:
    first, _, second = cursor.partition("\0")
    return first, second


def _retained(one: RetainedInfo) -> bytes:
    return retained_key(one.topic.encode())


CLIENTS: Final = Sorted(
    ClientPage, lambda one: one.client_id, lambda one: one.client_id, join=client
)
SUBSCRIPTIONS: Final = Sorted(
    SubscriptionPage,
    lambda one: (one.client_id, one.topic_filter),
    lambda one: f"{one.client_id}\0{one.topic_filter}",
    _pair,
    _first,
)
RETAINED: Final = Sorted(
    RetainedPage,
    _retained,
    lambda one: one.topic,
    lambda cursor: retained_key(cursor.encode()),
    _first,
)
QUEUES: Final = Sorted(
    QueuePage,
    lambda one: one.name.removeprefix("$queue/"),
    lambda one: one.name.removeprefix("$queue/"),
)
CONSUMERS: Final = Sorted(
    ConsumerPage,
    lambda one: (one.group, one.client_id),
    lambda one: f"{one.group}\0{one.client_id}",
    _pair,
)
OWNERS: Final = Sorted(
    EcqOwnerPage,
    lambda one: ecq_tables.digest(one.owner.encode()),
    lambda one: ecq_tables.digest(one.owner.encode()).hex(),
    bytes.fromhex,
    _first,
)
REQUESTS: Final = Sorted(
    SdvRequestPage,
    lambda one: sdv_tables.digest(one.request_id),
    lambda one: sdv_tables.digest(one.request_id).hex(),
    bytes.fromhex,
)
MESSAGE_QUEUES: Final = Sorted(
    MqPage, lambda one: one.name, lambda one: cursor_of(one.name), read_cursor, _first
)


async def sorted_page(brokers: Brokers, name: str, args: Args, order: Sorted) -> object:
    """A page of all shards. Those which know nothing of what the list is about have no items."""
    limit = page_limit(args, QUEUES_PER_PAGE_MAX)  # the brokers have their own opinion too
    found = await brokers.found(name, args, order.kind)
    pages = [_page(found[shard]) if shard in found else Page([], None) for shard in brokers.shards]
    merged = merge(pages, limit, order.key, order.place, order.cursor)
    joined = [order.join(brokers.placing, one) for one in merged.items]
    items = [one for one in joined if one is not None]
    if order.kind is not MqPage:
        return order.kind(items, merged.next)
    if merged.next is None:
        return MqPage(items, MqPageMeta(False))
    return MqPage(items, MqPageMeta(True, merged.next))


def _page(page: Any) -> Page:
    if isinstance(page, MqPage):
        return Page(page.data, page.meta.cursor or None)
    items, following = page.__struct_fields__[:2]
    return Page(getattr(page, items), getattr(page, following))


Messages = type[MessagePage] | type[DeadLetterPage]


async def messages_in_turn(brokers: Brokers, name: str, args: Args, kind: Messages) -> object:
    """Messages of a queue which has parts. They have no order in common, so it is one part after
    the other; the cursor is the shard, and the cursor there."""
    limit = page_limit(args)
    first, cursor = _turn(str(args.get("cursor", "")), len(brokers.shards))
    missing: list[QueuelakeError] = []
    messages: list[Any] = []
    for shard in brokers.shards[first:]:
        wanted = {**args, "limit": limit - len(messages), "cursor": cursor}
        try:
            page: Any = await brokers.one(shard, name, wanted, kind)
        except QueuelakeError as error:
            if not is_missing(error):
                raise
            missing.append(error)
            page = kind([])
        messages += page.messages
        if page.next is not None:
            return kind(messages, f"{shard}:{page.next}")
        size = sum([len(one.payload) for one in messages])
        if len(messages) == limit or size >= PAGE_PAYLOAD_BYTES_MAX:
            return kind(messages, f"{shard + 1}:" if shard + 1 in brokers.shards else None)
        cursor = ""
    if len(missing) == len(brokers.shards):
        raise missing[0]
    return kind(messages)


def _turn(cursor: str, shards: int) -> tuple[int, str]:
    if not cursor:
        return 0, ""
    shard, colon, rest = cursor.partition(":")
    if not (colon and shard.isascii() and shard.isdigit() and int(shard) < shards):
        raise RefusedError(f"cursor is {cursor!r}, may be `next` of the page before")
    return int(shard), rest
