"""What the admin process and the CLI may ask about the broker as such: see control_admin.py."""

from __future__ import annotations

import heapq
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from itertools import islice
from typing import Final, cast, get_args

from queuelake import control_admin as ops
from queuelake.broker.auth.bans import RunTimeBan
from queuelake.broker.core import Broker
from queuelake.broker.operation import Operation, page_limit
from queuelake.control_admin import (
    AclAnswer,
    Action,
    BanInfo,
    BanKind,
    BanList,
    RetainedInfo,
    RetainedMessage,
    RetainedPage,
    SettingsInForce,
    SubscriptionInfo,
    SubscriptionPage,
)
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.message import Message
from queuelake.protocol.topics import (
    filter_problem,
    is_shared,
    matches,
    split_shared,
    topic_problem,
)
from queuelake.settings import shown_table
from queuelake.storage import api, records

BAN_SECONDS_MAX: Final = 10 * 365 * 86_400
LOOKED_AT_MAX: Final = 10_000  # for one page: most may not be wanted


class AdminOperations:
    """Each method answers one named request; they run on the loop and stay short."""

    def __init__(
        self, broker: Broker, durable: Callable[[], Awaitable[None]], origins: Mapping[str, str]
    ) -> None:
        self._broker = broker
        self._origins = origins
        self._durable = durable
        self._levels_max = broker.settings.mqtt.topic_levels_max

    def table(self) -> dict[str, Operation]:
        return {
            ops.SUBSCRIPTIONS: self.subscriptions,
            ops.RETAINED: self.retained,
            ops.RETAINED_MESSAGE: self.retained_message,
            ops.RETAINED_DELETE: self.retained_delete,
            ops.BANS: self.bans,
            ops.BAN_ADD: self.ban_add,
            ops.BAN_REMOVE: self.ban_remove,
            ops.ACL_TEST: self.acl_test,
            ops.SETTINGS: self.settings,
        }

    # Subscriptions

    def subscriptions(self, args: dict[str, object]) -> SubscriptionPage:
        """Of all clients or one; with `topic`, those which a message there would reach."""
        limit, only, topic = (
            page_limit(args),
            _text(args, "client_id"),
            _text(args, "topic").encode(),
        )
        client, _, last = _text(args, "cursor").partition("\0")
        sessions = self._broker.sessions.by_client
        wanted = [only] if only in sessions else []
        if not only:
            wanted = heapq.nsmallest(LOOKED_AT_MAX, (name for name in sessions if name >= client))
        found: list[SubscriptionInfo] = []
        for name in wanted:
            for info in _subscriptions_of(self._broker, name, topic):
                if (name, info.topic_filter) <= (client, last):
                    continue
                if len(found) == limit:
                    return SubscriptionPage(found, _place(found[-1].client_id, found[-1]))
                found.append(info)
        more = len(wanted) == LOOKED_AT_MAX
        return SubscriptionPage(found, _place(wanted[-1], None) if more else None)

    # Retained messages, as the store has them

    def retained(self, args: dict[str, object]) -> RetainedPage:
        limit, topic_filter = (
            page_limit(args),
            _text(args, "filter").encode(),
        )
        if topic_filter and (problem := filter_problem(topic_filter, self._levels_max)):
            raise RefusedError(f"filter {topic_filter.decode()!r}: {problem}")
        last = _text(args, "cursor").encode()  # the topic up to which others were looked at
        now_ms = self._broker.clock.now_ms()
        found: list[RetainedInfo] = []
        key = records.retained_key(last)
        with self._broker.store.view() as view:
            rows = view.scan(api.RETAINED, key + b"\0" if last else b"", b"\xff" * 511)
            for place, value in islice(rows, LOOKED_AT_MAX):
                message = records.retained_message(value)
                key, last = place, message.topic
                if message.expires_ms and message.expires_ms <= now_ms:
                    continue
                if topic_filter and not matches(topic_filter, message.topic):
                    continue
                found.append(_retained(message))
                if len(found) == limit:
                    break
            more = next(iter(view.scan_keys(api.RETAINED, key + b"\0", b"\xff" * 511)), None)
        return RetainedPage(found, last.decode() if more else None)

    def retained_message(self, args: dict[str, object]) -> RetainedMessage:
        topic = _text(args, "topic").encode()
        message = self._broker.retained.get(topic, self._broker.clock.now_ms())
        if message is None:
            raise _not_retained(topic)
        return RetainedMessage(_retained(message), message.payload()[: ops.PAYLOAD_BYTES_MAX])

    async def retained_delete(self, args: dict[str, object]) -> None:
        topic = _text(args, "topic").encode()
        if not self._broker.retained.remove(topic):
            raise _not_retained(topic)
        self._broker.runner.store_retained(topic, None)
        await self._durable()

    # Who may connect, and do what

    def bans(self, _: dict[str, object]) -> BanList:
        now = time.time()
        bans = self._broker.authenticator.bans.list()
        return BanList([_ban(one) for one in bans if one.until is None or one.until > now])

    def ban_add(self, args: dict[str, object]) -> BanInfo:
        """Whoever it is about is disconnected too, if connected."""
        kind, value, seconds = _kind(args), _text(args, "value"), args.get("seconds", 0)
        if not isinstance(seconds, int | float) or not 0 <= seconds <= BAN_SECONDS_MAX:
            raise RefusedError(f"seconds is {seconds!r}, may be 0 to {BAN_SECONDS_MAX}")
        now = time.time()
        until = now + seconds if seconds else None
        bans = self._broker.authenticator.bans
        bans.add(kind, value, until, now)
        for connection in list(self._broker.connections):
            client_id = connection.session.client_id if connection.session is not None else ""
            if bans.refuses(client_id, connection.username, connection.peer_ip, now):
                connection.close(reasons.BANNED, "banned by an administrator")
        return BanInfo(kind, value, _until_ms(until))

    def ban_remove(self, args: dict[str, object]) -> None:
        kind, value = _kind(args), _text(args, "value")
        if not self._broker.authenticator.bans.remove(kind, value):
            raise NotFoundError(f"there is no ban of {kind} {value!r} made while running")

    def acl_test(self, args: dict[str, object]) -> AclAnswer:
        """What a client of this name would be answered; its token's own rules are not known."""
        client_id, username = _text(args, "client_id"), _text(args, "username") or None
        action, topic = _text(args, "action"), _text(args, "topic").encode()
        if action not in get_args(Action):
            raise RefusedError(f"action is {action!r}, may be publish or subscribe")
        check = topic_problem if action == "publish" else filter_problem
        if problem := check(topic, self._levels_max):
            raise RefusedError(f"topic {topic.decode()!r}: {problem}")
        ip = _address(_text(args, "ip") or "127.0.0.1")
        identity = self._broker.authenticator.presumed(username, ip)
        acl = self._broker.acl_for(ip, client_id, identity)
        allowed = acl.may_publish(topic) if action == "publish" else acl.may_subscribe(topic)
        return AclAnswer(allowed, identity.platform)

    def settings(self, _: dict[str, object]) -> SettingsInForce:
        return SettingsInForce(shown_table(self._broker.settings), dict(self._origins))


def _subscriptions_of(broker: Broker, client_id: str, topic: bytes) -> list[SubscriptionInfo]:
    found: list[SubscriptionInfo] = []
    subscriptions = broker.sessions.by_client[client_id].subscriptions
    for topic_filter in sorted(subscriptions):
        inner = split_shared(topic_filter)[1] if is_shared(topic_filter) else topic_filter
        if topic and not matches(inner, topic):
            continue
        one = subscriptions[topic_filter]
        found.append(
            SubscriptionInfo(
                client_id,
                topic_filter.decode(),
                one.qos,
                one.no_local,
                one.retain_as_published,
                one.subscription_id,
            )
        )
    return found


def _place(client_id: str, last: SubscriptionInfo | None) -> str:
    """Where a page of subscriptions ends; without `last`: behind all of this client."""
    return f"{client_id}\0{last.topic_filter if last is not None else chr(0x10FFFF)}"


def _retained(message: Message) -> RetainedInfo:
    return RetainedInfo(
        message.topic.decode(),
        len(message.payload()),
        message.qos,
        message.publisher,
        message.ts_ms,
        message.expires_ms,
    )


def _not_retained(topic: bytes) -> NotFoundError:
    return NotFoundError(f"topic {topic.decode()!r} has no retained message")


def _ban(ban: RunTimeBan) -> BanInfo:
    return BanInfo(ban.kind, ban.value, _until_ms(ban.until))


def _until_ms(until: float | None) -> int | None:
    return int(until * 1000) if until is not None else None


def _kind(args: dict[str, object]) -> BanKind:
    kind = args.get("kind")
    if kind not in get_args(BanKind):
        raise RefusedError(f"kind is {kind!r}, may be clientid, username or ip")
    return cast(BanKind, kind)


def _address(ip: str) -> str:
    try:
        return str(ip_address(ip))
    except ValueError:
        raise RefusedError(f"ip is {ip!r}, may be an IPv4 or IPv6 address") from None


def _text(args: dict[str, object], name: str) -> str:
    return str(args.get(name, ""))
