"""The ways an operation can be spread over shards; `spreading.py` says which goes which way.

What is somewhere is asked for there. What is everywhere is changed everywhere, and its figures are
added up. Durable queues are in one shard, but for dead letters of what is spread itself: message
queues, mailboxes, vehicles. Those are wherever something died.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from queuelake import control_mq, control_sdv, names
from queuelake.broker.node.asking import Args, Brokers
from queuelake.broker.node.paging import Messages, Sorted, client, messages_in_turn, sorted_page
from queuelake.broker.node.summing import total
from queuelake.control import ClientInfo
from queuelake.control_access import ACCESS_RELOAD
from queuelake.control_admin import BanList
from queuelake.control_mq import MqInfo
from queuelake.control_sdv import SdvConfigInfo
from queuelake.errors import BrokerDownError, NotFoundError, RefusedError
from queuelake.mq_settings import legacy_name
from queuelake.placing import Placing

Way = Callable[[Brokers, str, Args], Awaitable[object]]

TAKEN = "ALREADY_EXISTS"


# One shard


def at(place: Callable[[Placing, Args], int]) -> Way:
    """The broker of the shard which is at this place."""

    async def way(brokers: Brokers, name: str, args: Args) -> object:
        return await brokers.one(place(brokers.placing, args), name, args, object)

    return way


def of_name(argument: str) -> Callable[[Placing, Args], int]:
    """Of a client, an owner or a vehicle."""
    return lambda placing, args: placing.of(text(args, argument).encode())


def of_topic(placing: Placing, args: Args) -> int:
    # What is everywhere or is split is never retained: whoever is asked says so.
    return max(0, placing.of_topic(text(args, "topic").encode()))


def of_queue(placing: Placing, args: Args) -> int:
    return placing.of_queue(queue_of(args))


first_shard: Way = at(lambda placing, args: 0)


async def named_shard(brokers: Brokers, name: str, args: Args) -> object:
    """The caller knows the stores: `shard` says which is meant."""
    shard = args.get("shard", 0)
    if not isinstance(shard, int) or shard not in brokers.shards:
        raise RefusedError(f"shard is {shard!r}, may be 0 to {brokers.shards[-1]}")
    return await brokers.one(shard, name, args, object)


# A queue, which is in one shard unless it has dead letters


def to_queue(letters: Way) -> Way:
    async def way(brokers: Brokers, name: str, args: Args) -> object:
        if names.is_dead_letter(queue_of(args)):
            return await letters(brokers, name, args)
        return await brokers.one(of_queue(brokers.placing, args), name, args, object)

    return way


async def whoever_has_it(brokers: Brokers, name: str, args: Args) -> object:
    found = await brokers.found(name, args, object)
    return found.get(of_queue(brokers.placing, args), next(iter(found.values())))


async def all_parts(brokers: Brokers, name: str, args: Args) -> object:
    """Change a queue which may have parts, or may not be there yet."""
    home = of_queue(brokers.placing, args)
    if await brokers.one(home, control_mq.QUEUE_EVERYWHERE, {"name": queue_of(args)}, bool):
        return (await brokers.change(home, name, args, object))[0]
    return await brokers.one(home, name, args, object)


# All shards


def added_up(kind: type[Any]) -> Way:
    """Of those which have what is meant."""

    async def way(brokers: Brokers, name: str, args: Args) -> object:
        return total([*(await brokers.found(name, args, kind)).values()])

    return way


def done_everywhere(kind: type[Any]) -> Way:
    """The same, of something which is done; what the first one refuses nobody does."""

    async def way(brokers: Brokers, name: str, args: Args) -> object:
        return total(await brokers.change(0, name, args, kind))

    return way


async def everywhere(brokers: Brokers, name: str, args: Args) -> object:
    """All do the same, and one answer is as good as another."""
    return (await brokers.change(0, name, args, object))[0]


def list_of(order: Sorted) -> Way:
    async def way(brokers: Brokers, name: str, args: Args) -> object:
        return await sorted_page(brokers, name, args, order)

    return way


def in_turn(kind: Messages) -> Way:
    async def way(brokers: Brokers, name: str, args: Args) -> object:
        return await messages_in_turn(brokers, name, args, kind)

    return way


# Those which are like no other


async def one_client(brokers: Brokers, name: str, args: Args) -> ClientInfo:
    found = client(brokers.placing, await brokers.found(name, args, ClientInfo))
    if found is None:
        raise NotFoundError(f"client {text(args, 'client_id')!r} is not known")
    return found


async def disconnect(brokers: Brokers, name: str, args: Args) -> bool:
    """Its front ends all connections of a client with one of them."""
    return any((await brokers.found(name, args, bool)).values())


async def bans(brokers: Brokers, name: str, args: Args) -> BanList:
    lists = await brokers.all(name, args, BanList)
    return BanList(
        list({(one.kind, one.value): one for part in lists for one in part.bans}.values())
    )


async def change_access(brokers: Brokers, name: str, args: Args) -> object:
    """Users and rules are files of a machine. They are changed where the first shard is, and other
    brokers there read them again; those of other machines read their own."""
    answer = await brokers.one(0, name, args, object)
    for shard in brokers.shards[1:]:
        with contextlib.suppress(BrokerDownError):  # who starts reads them anyway
            await brokers.one(shard, ACCESS_RELOAD, {}, type(None))
    return answer


async def create_message_queue(brokers: Brokers, name: str, args: Args) -> object:
    """A part in each shard, first where a durable queue of this name would be. A part which is
    there already is of a call which was interrupted, or of somebody who has subscribed."""
    queue = _new_message_queue(args)
    home = brokers.placing.of_queue(queue)
    is_there = await brokers.one(home, control_mq.QUEUE_EVERYWHERE, {"name": queue}, bool)
    brokers.check_owners()
    made = [] if is_there else [await brokers.one(home, name, args, MqInfo)]
    others = [shard for shard in brokers.shards if shard != home]
    made += (await brokers.some(others, name, args, MqInfo, lambda e: e.code == TAKEN)).values()
    # Where all parts were there already it is refused as ever.
    return made[0] if made else await brokers.one(home, name, args, MqInfo)


def _new_message_queue(args: Args) -> str:
    settings = _json(args, "settings")
    if not isinstance(settings, dict):
        return ""
    return str(settings.get("name") or legacy_name(str(settings.get("topic_filter"))))


async def configure_fanout(brokers: Brokers, name: str, args: Args) -> object:
    changes = _json(args, "settings")
    wanted = changes.get("heartbeat_topics") if isinstance(changes, dict) else None
    if wanted is not None:
        now = await brokers.one(0, control_sdv.SDV_CONFIG, {}, SdvConfigInfo)
        if wanted != now.inuse.heartbeat_topics:
            raise RefusedError(
                "heartbeat_topics cannot be changed while a cluster with several shards runs: "
                "they decide where topics are"
            )
    return await everywhere(brokers, name, args)


# Arguments


def text(args: Args, name: str) -> str:
    return str(args.get(name, ""))


def queue_of(args: Args) -> str:
    return text(args, "name").removeprefix("$queue/")


def _json(args: Args, name: str) -> object:
    """None: it is none, as the broker will say."""
    body = args.get(name)
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body if isinstance(body, bytes) else b"")
    return None
