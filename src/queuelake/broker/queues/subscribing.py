"""SUBSCRIBE to a queue: which queue and which group is meant, and joining it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake import names
from queuelake.broker.queues.incoming import DIGITS_MAX
from queuelake.broker.queues.membership import join, leave
from queuelake.broker.queues.subscriber import Subscriber
from queuelake.engine import commands as c
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.packets import V5
from queuelake.storage.queue_tables import first_at_time

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.session import Session, Subscription

GROUP_BYTES_MAX: Final = 256
PREFETCH_MAX: Final = 65535
_PREFIXES: Final = (names.PREFIX, names.MQ_PREFIX, b"$ECQ/")
_STARTS: Final = {
    "earliest": c.FROM_EARLIEST,
    "latest": c.FROM_LATEST,
    "first": c.FROM_EARLIEST,
    "last": c.FROM_LAST,
    "next": c.FROM_LATEST,
}


def is_queue_filter(topic_filter: bytes) -> bool:
    return topic_filter.startswith(_PREFIXES)


def subscribe(queues: Queues, subscription: Subscription, resumed: bool = False) -> int:
    """Join the group which the subscription asks for; it replaces the one of the same filter.

    Returns the granted QoS. `resumed`: the client did not ask now, so its group goes on where it
    is.

    Raises:
        RefusedError: there is no such queue, or a user property makes no sense.
    """
    for reception in queues.receptions:
        if reception.takes(subscription.topic_filter):
            return reception.subscribe(subscription)
    session = subscription.session
    options = {key.decode(): value.decode() for key, value in subscription.user}
    if subscription.qos == 0:
        problem = "a queue needs QoS 1 or 2: at QoS 0 nothing can be settled"
        raise RefusedError.because(reasons.UNSPECIFIED_ERROR, problem)
    group, derived = _group(session.client_id, options)
    prefetch = prefetch_of(options)
    mode = options.get("ack-mode", "publish")
    if mode not in ("publish", "puback"):
        raise refused("ack-mode", mode, "puback or publish")
    host, pattern = resolve(queues, subscription.topic_filter)
    if pattern:
        group = f"{group}@{pattern.decode()}"
    limit = queues.settings.groups_per_queue_max
    if group not in host.machine.groups and len(host.machine.groups) >= limit:
        problem = f"queue {names.address(host.name)!r} has {limit} of {limit} consumer groups"
        raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)
    subscriber = Subscriber(host, subscription, group, derived, pattern, queues.new_tag())
    subscriber.prefetch = prefetch
    subscriber.settles_by_puback = mode == "puback" or session.version != V5
    subscriber.starts = _starts(queues, host, options)
    subscriber.replays = "x-stream-offset" in options and not resumed
    former = find(session, subscription.topic_filter)
    now_ms = queues.clock.now_ms()
    host.active_ms = now_ms
    if former is not None:
        session.consumers.remove(former)
        if former.host is not host or former.group != group:
            _stop(session, former, now_ms)
        else:
            former.joined = False
            host.subscribers.pop(former.tag, None)
    session.consumers.append(subscriber)
    join(host, subscriber, now_ms)
    return subscription.qos


def unsubscribe(queues: Queues, session: Session, topic_filter: bytes) -> None:
    for reception in queues.receptions:
        if reception.unsubscribe(session, topic_filter):
            return
    subscriber = find(session, topic_filter)
    if subscriber is not None:
        session.consumers.remove(subscriber)
        _stop(session, subscriber, queues.clock.now_ms())


def _stop(session: Session, subscriber: Subscriber, now_ms: int) -> None:
    """What the client holds it may still settle, until its time is over or it leaves."""
    host, group = subscriber.host, subscriber.group
    session.former = [one for one in session.former if one.host is not host or one.group != group]
    session.former.append(subscriber)
    leave(host, subscriber, False, now_ms)


def client_left(queues: Queues, session: Session) -> None:
    """Everything the client held goes back to its queues."""
    now_ms = queues.clock.now_ms()
    for subscriber in session.consumers:
        if subscriber.joined or subscriber.lost:
            leave(subscriber.host, subscriber, True, now_ms)
    session.consumers.clear()
    for subscriber in session.former:
        if not subscriber.host.is_deleted:
            leave(subscriber.host, subscriber, True, now_ms)
    session.former.clear()
    for reception in queues.receptions:
        reception.client_left(session)


def client_resumed(queues: Queues, session: Session) -> None:
    """The subscriptions of a persistent session join their groups again."""
    for topic_filter, subscription in session.subscriptions.items():
        if is_queue_filter(topic_filter) and find(session, topic_filter) is None:
            try:
                subscribe(queues, subscription, True)
            except RefusedError as error:
                if any([one.waits_for(subscription) for one in queues.receptions]):
                    continue
                queues.report(session.client_id, topic_filter, str(error))


def find(session: Session, topic_filter: bytes) -> Subscriber | None:
    for subscriber in session.consumers:
        if subscriber.subscription.topic_filter == topic_filter:
            return subscriber
    return None


def resolve(queues: Queues, topic_filter: bytes) -> tuple[HostedQueue, bytes]:
    """The queue a filter means, and the pattern for the levels behind its name."""
    name, pattern = names.parse_subscribe(topic_filter)
    if queues.exists(name) and (not pattern or name in queues.sublevels):
        return queues.get(name), pattern
    above = queues.above_with_sublevels(name)
    if above:
        rest = name[len(above) + 1 :].encode()
        return queues.get(above), rest + b"/" + pattern if pattern else rest
    if pattern:
        problem = f"there is no queue with sublevels at {names.address(name)!r}"
        raise RefusedError.because(reasons.TOPIC_FILTER_INVALID, problem)
    queues.ensure(name)
    return queues.get(name), b""


def _group(client_id: str, options: dict[str, str]) -> tuple[str, bool]:
    """The group's name, and whether it was derived from the client's."""
    group = options.get("consumer-group", "")
    if len(group.encode()) > GROUP_BYTES_MAX:
        raise refused("consumer-group", group, f"at most {GROUP_BYTES_MAX} bytes")
    if group:
        return group, False
    return client_id.partition("-")[0] or client_id, True


def prefetch_of(options: dict[str, str]) -> int:
    text = options.get("prefetch", "0")
    if not _is_number(text) or int(text) > PREFETCH_MAX:
        raise refused("prefetch", text, f"1..{PREFETCH_MAX}")
    return int(text)


def _starts(queues: Queues, host: HostedQueue, options: dict[str, str]) -> list[int] | None:
    """Where the group begins: `group-start` of a new one, `x-stream-offset` of a stream."""
    start = options.get("x-stream-offset", "")
    if not start:
        name = options.get("group-start", "")
        if not name:
            return None
        if name not in ("earliest", "latest"):
            raise refused("group-start", name, "earliest or latest")
        return [_STARTS[name]]
    if not host.machine.policy.is_stream:
        problem = f"x-stream-offset: {names.address(host.name)!r} is not a stream"
        raise RefusedError.because(reasons.IMPLEMENTATION_SPECIFIC_ERROR, problem)
    if start in ("first", "last", "next"):
        return [_STARTS[start]]
    kind, _, number = start.rpartition("=")
    if not _is_number(number) or kind not in ("", "offset", "timestamp"):
        raise refused("x-stream-offset", start, "first, last, next, N, offset=N, timestamp=MS")
    if kind == "timestamp":
        with queues.store.view() as view:
            return [
                first_at_time(view, host.id, partition.number, int(number))
                for partition in host.machine.partitions
            ]
    return [max(1, int(number))]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def refused(name: str, value: str, allowed: str) -> RefusedError:
    problem = f"{name} = {value[:64]!r}: allowed: {allowed}"
    return RefusedError.because(reasons.IMPLEMENTATION_SPECIFIC_ERROR, problem)
