"""Operations over several shards: who is asked, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from queuelake import control_mq, control_pipeline, control_queues, control_sdv
from queuelake.broker.node.spreading import TABLE, Spread
from queuelake.broker.operations import Operations
from queuelake.control import ClientInfo, ClientPage, Status
from queuelake.control_access import ACCESS_RELOAD, USER_ADD, UserInfo
from queuelake.control_admin import (
    BAN_REMOVE,
    BANS,
    RETAINED,
    SUBSCRIPTIONS,
    BanInfo,
    BanList,
    RetainedInfo,
    RetainedPage,
    SubscriptionInfo,
    SubscriptionPage,
)
from queuelake.control_ecq import ECQ_INSPECT, ECQ_OWNERS, EcqOwner, EcqOwnerPage
from queuelake.control_mq import MqInfo, MqLimitsInfo, MqPage, MqPageMeta, MqStats
from queuelake.control_queues import (
    ConsumerInfo,
    ConsumerPage,
    MessagePage,
    Purged,
    QueueMessage,
    QueuePage,
    QueueSummary,
)
from queuelake.control_sdv import SdvCancelled
from queuelake.errors import (
    AnswerError,
    BrokerDownError,
    NameTakenError,
    NotFoundError,
    QueuelakeError,
    RefusedError,
)
from queuelake.placing import Placing
from queuelake.storage.ecq_tables import digest
from tests.simulation.node import Node as SimulatedNode

SHARDS = 3
T = TypeVar("T")
Answer = Callable[[int, dict[str, Any]], object]


class FakeNode:
    """Brokers which answer from a table: a value, an error, or a function of shard and arguments;
    a list has one of these for each shard."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.shards = SHARDS
        self.placing = Placing(SHARDS)
        self.answers = answers
        self.owners = ["a", "b", "c"]
        self.asked: list[tuple[int, str]] = []

    def owner(self, shard: int) -> str:
        return self.owners[shard]

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T:
        self.asked.append((shard, name))
        await asyncio.sleep(0)
        answer = self.answers[name]
        if isinstance(answer, list):
            answer = answer[shard]
        if callable(answer):
            answer = answer(shard, args)
        if isinstance(answer, QueuelakeError):
            raise answer
        return answer  # type: ignore[no-any-return]

    def do(self, name: str, /, **args: object) -> Any:
        async def run() -> object:
            result = Spread({}, self)[name](args)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run(run())


def missing(text: str = "there is none") -> AnswerError:
    """As it comes from another node."""
    return AnswerError("NOT_FOUND", text, 404)


def name_in(shard: int, prefix: str = "q") -> str:
    placing = Placing(SHARDS)
    return next(name for n in range(100) if placing.of_queue(name := f"{prefix}{n}") == shard)


def test_every_operation_of_a_broker_has_its_way() -> None:
    operations = Operations(SimulatedNode().broker, [], {}, {}).table()
    assert operations.keys() == TABLE.keys()


def test_own_operations_win() -> None:
    spread = Spread({"status": lambda args: "own", "more": lambda args: "more"}, FakeNode({}))
    assert spread["status"]({}) == "own"
    assert len(spread) == len(list(spread)) == len(TABLE) + 1
    assert "nothing" not in spread


def test_a_shard_without_an_owner_is_named() -> None:
    node = FakeNode({control_queues.QUEUE: "found"})
    node.owners[1] = ""
    assert node.do(control_queues.QUEUE, name=name_in(2)) == "found"
    with pytest.raises(BrokerDownError, match="shard 1"):
        node.do(control_queues.QUEUE, name=name_in(1))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_queue_is_asked_where_it_is(shard: int) -> None:
    node = FakeNode({control_queues.QUEUE_PURGE: lambda shard, args: Purged(shard)})
    assert node.do(control_queues.QUEUE_PURGE, name=f"$queue/{name_in(shard)}/x").purged == shard
    assert node.asked == [(shard, control_queues.QUEUE_PURGE)]


def test_a_mailbox_is_asked_where_its_owner_is() -> None:
    node = FakeNode({ECQ_INSPECT: lambda shard, args: shard})
    for owner in ("v1", "v2", "v3", "v4"):
        assert node.do(ECQ_INSPECT, owner=owner) == node.placing.of(owner.encode())


def test_dead_letters_are_wherever_something_died() -> None:
    node = FakeNode({control_queues.QUEUE_PURGE: [Purged(2), missing(), Purged(5)]})
    assert node.do(control_queues.QUEUE_PURGE, name="dlq/x") == Purged(7)
    node.answers[control_queues.QUEUE_PURGE] = missing("no such queue")
    with pytest.raises(AnswerError, match="no such queue"):
        node.do(control_queues.QUEUE_PURGE, name="dlq/x")
    node.answers[control_queues.QUEUE_PURGE] = [Purged(2), missing(), RefusedError("no")]
    with pytest.raises(RefusedError, match="no"):
        node.do(control_queues.QUEUE_PURGE, name="dlq/x")


@pytest.mark.parametrize("is_everywhere", [True, False])
def test_dead_letters_are_configured_where_they_may_come_to_be(is_everywhere: bool) -> None:
    name = "dlq/" + name_in(1)
    node = FakeNode(
        {
            control_mq.QUEUE_EVERYWHERE: is_everywhere,
            control_queues.QUEUE_CONFIGURE: lambda shard, args: shard,
        }
    )
    assert node.do(control_queues.QUEUE_CONFIGURE, name=name) == 1
    told = [shard for shard, asked in node.asked if asked == control_queues.QUEUE_CONFIGURE]
    assert told == ([1, 0, 2] if is_everywhere else [1])


def a_message(shard: int, offset: int) -> QueueMessage:
    return QueueMessage(id=f"{shard}-{offset}", partition=0, offset=offset, payload=b"x")


def pages_of(counts: list[int]) -> Answer:
    """Messages of a part: as a broker has them, by place."""

    def answer(shard: int, args: dict[str, Any]) -> object:
        if not counts[shard]:
            return missing()
        begin = int(args["cursor"].partition(":")[2] or 1)
        end = begin + args["limit"]
        found = [a_message(shard, at) for at in range(begin, min(end, counts[shard] + 1))]
        return MessagePage(found, f"0:{end}" if end <= counts[shard] else None)

    return answer


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("counts", [[3, 2, 1], [0, 4, 0], [2, 0, 3]])
def test_messages_of_all_parts_come_one_part_after_the_other(counts: list[int], limit: int) -> None:
    node = FakeNode({control_mq.MQ_MESSAGES: pages_of(counts)})
    found: list[str] = []
    cursor = ""
    while True:
        page = node.do(control_mq.MQ_MESSAGES, name="jobs", limit=limit, cursor=cursor)
        assert len(page.messages) <= limit
        found += [one.id for one in page.messages]
        if page.next is None:
            break
        assert page.messages
        cursor = page.next
    assert found == [f"{shard}-{at}" for shard in range(3) for at in range(1, counts[shard] + 1)]


def test_messages_of_a_queue_nobody_has_and_cursors_of_nobody() -> None:
    node = FakeNode({control_mq.MQ_MESSAGES: pages_of([0, 0, 0])})
    with pytest.raises(AnswerError):
        node.do(control_mq.MQ_MESSAGES, name="jobs")
    for cursor in ("0", "3:", "x:1", "-1:"):
        with pytest.raises(RefusedError, match="cursor"):
            node.do(control_mq.MQ_MESSAGES, name="jobs", cursor=cursor)


# Lists


def clients_of(known: list[list[str]]) -> Answer:
    def answer(shard: int, args: dict[str, Any]) -> ClientPage:
        names = [name for name in sorted(known[shard]) if name > args.get("cursor", "")]
        page = names[: args["limit"]]
        items = [ClientInfo(name, True, queued_messages=shard + 1) for name in page]
        return ClientPage(items, page[-1] if len(names) > len(page) else None)

    return answer


def test_a_client_is_listed_once_with_what_waits_for_it_anywhere() -> None:
    everybody = [f"c{n}" for n in range(20)]
    node = FakeNode({"clients": clients_of([everybody, everybody, everybody])})
    found: list[ClientInfo] = []
    cursor: str | None = ""
    while cursor is not None:
        page = node.do("clients", limit=3, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
    assert [one.client_id for one in found] == sorted(everybody)
    assert {one.queued_messages for one in found} == {6}


def test_a_client_whose_home_does_not_know_it_is_not_there() -> None:
    home = Placing(SHARDS).of(b"c1")
    known = [[], ["c1"], ["c1"]] if home == 0 else [["c1"], [], []]
    node = FakeNode({"clients": clients_of(known), "client": missing()})
    assert node.do("clients", limit=10).items == []
    there = [missing(), missing(), missing()]
    there[(home + 1) % SHARDS] = ClientInfo("c1", False)  # type: ignore[call-overload]
    node.answers["client"] = there
    with pytest.raises(NotFoundError):
        node.do("client", client_id="c1")


def test_a_client_is_as_its_home_says() -> None:
    home = Placing(SHARDS).of(b"c1")
    there = [ClientInfo("c1", False, inflight_messages=1, subscriptions=2) for _ in range(SHARDS)]
    there[home] = ClientInfo("c1", True, "me", subscriptions=3)
    assert FakeNode({"client": there}).do("client", client_id="c1") == ClientInfo(
        "c1", True, "me", subscriptions=3, inflight_messages=2
    )


def test_subscriptions_are_listed_once_and_retained_messages_by_topic() -> None:
    plain, queue = SubscriptionInfo("c", "a/#", 1), SubscriptionInfo("c", "$queue/q", 1)
    node = FakeNode(
        {
            SUBSCRIPTIONS: [
                SubscriptionPage([plain]),
                SubscriptionPage([queue, plain]),
                SubscriptionPage([plain]),
            ],
            RETAINED: [
                RetainedPage([RetainedInfo("b", 1, 0)]),
                RetainedPage([RetainedInfo("a", 1, 0)], "a"),
                RetainedPage([]),
            ],
        }
    )
    assert node.do(SUBSCRIPTIONS, limit=10) == SubscriptionPage([queue, plain])
    assert node.do(SUBSCRIPTIONS, limit=1) == SubscriptionPage([queue], "c\0$queue/q")
    assert node.do(RETAINED, limit=10) == RetainedPage([RetainedInfo("a", 1, 0)], "a")


def test_queues_are_listed_by_name_and_parts_of_dead_letters_together() -> None:
    def summary(name: str, depth: int) -> QueueSummary:
        return QueueSummary(f"$queue/{name}", 1, "none", depth=depth, consumers=1)

    node = FakeNode(
        {
            control_queues.QUEUES: [
                QueuePage([summary("a", 1), summary("dlq/x", 2)]),
                QueuePage([summary("dlq/x", 3)]),
                QueuePage([summary("c", 1), summary("e", 1)], "e"),
            ]
        }
    )
    found = node.do(control_queues.QUEUES, limit=3)
    assert found.queues == [summary("a", 1), summary("c", 1), summary("dlq/x", 5)]
    assert found.next == "dlq/x"


def test_consumers_of_dead_letters_are_named_once() -> None:
    node = FakeNode(
        {
            control_queues.QUEUE_CONSUMERS: [
                missing(),
                ConsumerPage([ConsumerInfo("g", "c", [0], 1, 5)]),
                ConsumerPage([ConsumerInfo("g", "c", [0, 1], 2, 4)]),
            ]
        }
    )
    found = node.do(control_queues.QUEUE_CONSUMERS, name="dlq/x", limit=10)
    assert found == ConsumerPage([ConsumerInfo("g", "c", [0, 1], 3, 5)])


def test_mailboxes_are_listed_in_the_order_of_their_table() -> None:
    names = sorted([f"v{n}" for n in range(9)], key=lambda name: digest(name.encode()))

    def answer(shard: int, args: dict[str, Any]) -> EcqOwnerPage:
        after = bytes.fromhex(args["cursor"])
        mine = [name for name in names[shard::SHARDS] if digest(name.encode()) > after]
        page = [EcqOwner(name, False, 1, 1) for name in mine[: args["limit"]]]
        more = len(mine) > len(page)
        return EcqOwnerPage(page, digest(page[-1].owner.encode()).hex() if more else None)

    node = FakeNode({ECQ_OWNERS: answer})
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = node.do(ECQ_OWNERS, limit=2, cursor=cursor)
        found += [one.owner for one in page.owners]
        cursor = page.next
    assert found == names


# Message queues


def a_message_queue(name: str) -> MqInfo:
    return MqInfo(
        name=name,
        topic_filter="t/#",
        is_lastvalue=False,
        data_retention_period=1,
        dispatch_strategy="random",
        limits=MqLimitsInfo("infinity", "infinity"),
    )


def test_message_queues_are_listed_once_and_their_figures_are_added_up() -> None:
    page = MqPage([a_message_queue("a"), a_message_queue("b")], MqPageMeta(False))
    stats = [MqStats(messages=shard, subscribers=2) for shard in range(3)]
    node = FakeNode({control_mq.MQ_QUEUES: page, control_mq.MQ_STATS: stats})
    assert node.do(control_mq.MQ_QUEUES, limit=10) == page
    first = node.do(control_mq.MQ_QUEUES, limit=1)
    assert first.data == page.data[:1]
    assert first.meta.hasnext
    assert node.do(control_mq.MQ_STATS, name="a") == MqStats(messages=3, subscribers=2)


class Parts:
    """A message queue of which some shards have a part."""

    def __init__(self, there: set[int], durable: bool = False) -> None:
        self.there = there
        self.durable = durable

    def create(self, shard: int, args: dict[str, Any]) -> object:
        if shard in self.there or self.durable:
            return NameTakenError("jobs")
        self.there.add(shard)
        return a_message_queue("jobs")


@pytest.mark.parametrize("there", [set(), {0}, {1}, {0, 1}, {0, 1, 2}])
def test_a_message_queue_is_made_wherever_it_is_not(there: set[int]) -> None:
    home = Placing(SHARDS).of_queue("jobs")
    parts = Parts(set(there))
    node = FakeNode(
        {control_mq.MQ_CREATE: parts.create, control_mq.QUEUE_EVERYWHERE: home in there}
    )
    settings = json.dumps({"name": "jobs", "topic_filter": "t/#"}).encode()
    if len(there) == SHARDS:
        with pytest.raises(NameTakenError):
            node.do(control_mq.MQ_CREATE, settings=settings)
    else:
        assert node.do(control_mq.MQ_CREATE, settings=settings) == a_message_queue("jobs")
    assert parts.there == {0, 1, 2}


def test_a_message_queue_is_not_made_where_a_durable_one_has_its_name_or_a_shard_no_owner() -> None:
    settings = json.dumps({"name": "jobs", "topic_filter": "t/#"}).encode()
    home = Placing(SHARDS).of_queue("jobs")
    parts = Parts(set(), durable=True)
    node = FakeNode({control_mq.MQ_CREATE: parts.create, control_mq.QUEUE_EVERYWHERE: False})
    with pytest.raises(NameTakenError):
        node.do(control_mq.MQ_CREATE, settings=settings)
    assert [shard for shard, name in node.asked if name == control_mq.MQ_CREATE] == [home]
    parts = Parts(set())
    node = FakeNode({control_mq.MQ_CREATE: parts.create, control_mq.QUEUE_EVERYWHERE: False})
    node.owners[(home + 1) % SHARDS] = ""
    with pytest.raises(BrokerDownError):
        node.do(control_mq.MQ_CREATE, settings=settings)
    assert not parts.there


# Everywhere


def test_what_the_first_shard_refuses_nobody_does() -> None:
    node = FakeNode({control_mq.MQ_CONFIGURE: [RefusedError("no"), None, None]})
    with pytest.raises(RefusedError, match="no"):
        node.do(control_mq.MQ_CONFIGURE, settings=b"{}")
    assert node.asked == [(0, control_mq.MQ_CONFIGURE)]


def test_nothing_is_begun_while_a_shard_has_no_owner() -> None:
    node = FakeNode({control_mq.MQ_CONFIGURE: None})
    node.owners[2] = ""
    with pytest.raises(BrokerDownError, match="shard 2"):
        node.do(control_mq.MQ_CONFIGURE, settings=b"{}")
    assert not node.asked


def test_a_client_is_disconnected_wherever_it_is() -> None:
    assert FakeNode({"disconnect": [False, True, missing()]}).do("disconnect", client_id="c")
    with pytest.raises(AnswerError):
        FakeNode({"disconnect": missing()}).do("disconnect", client_id="c")


def test_bans_are_those_of_all_shards() -> None:
    one, other = BanInfo("ip", "::1"), BanInfo("clientid", "c")
    node = FakeNode(
        {
            BANS: [BanList([one]), BanList([one, other]), BanList([])],
            BAN_REMOVE: [missing(), None, None],
        }
    )
    assert node.do(BANS) == BanList([one, other])
    assert node.do(BAN_REMOVE, kind="ip", value="::1") is None


def test_rows_cancelled_everywhere_are_added_up() -> None:
    node = FakeNode({control_sdv.SDV_CANCEL: [SdvCancelled("r", n, 1) for n in range(3)]})
    assert node.do(control_sdv.SDV_CANCEL, request_id="r") == SdvCancelled("r", 3, 3)


def test_users_are_changed_at_one_machine_and_read_again_by_its_other_brokers() -> None:
    node = FakeNode({USER_ADD: UserInfo("me"), ACCESS_RELOAD: None})
    node.owners[1] = ""  # whoever it will be reads them when it starts
    assert node.do(USER_ADD, name="me") == UserInfo("me")
    assert node.asked == [(0, USER_ADD), (2, ACCESS_RELOAD)]


def test_topics_of_heartbeats_cannot_change_their_places() -> None:
    now = control_sdv.SdvConfigInUse(
        1,
        1,
        1,
        "",
        "add",
        "reject",
        "done",
        True,
        True,
        ["hb/{VIN}"],
        0,
        0,  # type: ignore[arg-type]
    )
    info = control_sdv.SdvConfigInfo(now, now)  # type: ignore[arg-type]
    node = FakeNode({control_sdv.SDV_CONFIG: info, control_sdv.SDV_CONFIGURE: info})
    same = json.dumps({"heartbeat_topics": ["hb/{VIN}"], "on_reject": "done"}).encode()
    assert node.do(control_sdv.SDV_CONFIGURE, settings=same) == info
    with pytest.raises(RefusedError, match="heartbeat_topics"):
        node.do(control_sdv.SDV_CONFIGURE, settings=b'{"heartbeat_topics": []}')
    assert node.do(control_sdv.SDV_CONFIGURE, settings=b"no json") == info


def test_the_export_process_says_which_store_it_means() -> None:
    node = FakeNode({control_pipeline.QUEUE_FLAGS: lambda shard, args: shard})
    assert [node.do(control_pipeline.QUEUE_FLAGS, shard=shard) for shard in range(3)] == [0, 1, 2]
    with pytest.raises(RefusedError, match="shard is 3, may be 0 to 2"):
        node.do(control_pipeline.QUEUE_FLAGS, shard=3)


def test_figures_are_added_up() -> None:
    node = FakeNode({"status": Status("1", True, 1, 1.0, {}, retained_messages=2)})
    assert node.do("status").retained_messages == 6
