"""Which sessions get a message: an index of topic filters, and a cache in front of it. No I/O.

Filters without wildcards are a dict. Filters with wildcards are a tree by level. The result for a
topic is a `Route`; it is kept until a subscription changes which could change it, so the usual
publish costs one dict lookup, however many subscriptions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import trait

from queuelake.broker.session import Session, Subscription
from queuelake.protocol.message import Message, encode_ids
from queuelake.protocol.topics import has_wildcard

CACHED_TOPIC_BYTES_MAX: Final = 512
NOT_TAKEN: Final = -1


@final
class Target:
    """One session which gets the message once, however many of its filters match."""

    __slots__ = ("ids", "no_local", "own", "qos", "retain_as_published", "session")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session: Session = session
        self.qos: int = max([item.qos for item in subscriptions])
        self.retain_as_published: bool = any([item.retain_as_published for item in subscriptions])
        self.ids: bytes = encode_ids(
            [item.subscription_id for item in subscriptions if item.subscription_id]
        )
        # What the session gets of its own publishes: only filters without no-local count.
        self.no_local: bool = any([item.no_local for item in subscriptions])
        self.own: Target | None = None
        if self.no_local:
            others = [item for item in subscriptions if not item.no_local]
            if others:
                self.own = Target(session, others)


@final
class SharedGroup:
    """The members of one shared subscription; each message goes to one of them."""

    __slots__ = ("_next", "members", "shared")

    def __init__(self, shared: bytes) -> None:
        self.shared: bytes = shared
        self.members: list[Subscription] = []
        self._next: int = 0

    def pick(self, qos: int, excluded: Session | None = None) -> Subscription | None:
        """The next member in turn which can take a message now; else one who can keep it.

        A connected member with room comes first, then any connected one, then one whose
        persistent session waits for it. At QoS 0 an absent member is of no use.
        """
        members = self.members
        count = len(members)
        busy: Subscription | None = None
        absent: Subscription | None = None
        for step in range(count):
            at = (self._next + step) % count
            member = members[at]
            session = member.session
            if session is excluded:
                continue
            if session.connection is not None:
                if not session.is_congested():
                    self._next = at + 1
                    return member
                if busy is None:
                    busy = member
            elif absent is None and session.persistent and qos > 0 and member.qos > 0:
                absent = member
        self._next += 1
        return busy if busy is not None else absent


@trait
class Capture:
    """Something besides sessions which gets every message of a topic filter."""

    topic_filter: bytes
    is_lenient: bool  # the publisher is told only when nobody at all could take the message

    @abstractmethod
    def capture(self, message: Message) -> int:
        """Take a message; returns 0, NOT_TAKEN, or the MQTT reason why it is refused."""


@final
class Route:
    """Who gets a message of one topic."""

    __slots__ = ("captures", "groups", "targets")

    def __init__(
        self, targets: list[Target], groups: list[SharedGroup], captures: list[Capture]
    ) -> None:
        self.targets: list[Target] = targets
        self.groups: list[SharedGroup] = groups
        self.captures: list[Capture] = captures


@final
class _Leaf:
    """The subscriptions of one filter."""

    __slots__ = ("captures", "groups", "subscriptions")

    def __init__(self) -> None:
        self.captures: list[Capture] | None = None
        self.subscriptions: dict[int, Subscription] = {}  # by session id
        self.groups: dict[bytes, SharedGroup] | None = None  # by the whole shared filter

    def is_empty(self) -> bool:
        return not self.subscriptions and not self.groups and not self.captures


@final
class _Node:
    __slots__ = ("children", "leaf")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.leaf: _Leaf | None = None


@final
class Router:
    """All subscriptions of the broker."""

    __slots__ = ("_cache", "_cache_max", "_exact", "_root", "count")

    def __init__(self, cache_entries_max: int) -> None:
        self._exact: dict[bytes, _Leaf] = {}
        self._root: _Node = _Node()
        self._cache: dict[bytes, Route] = {}
        self._cache_max: int = cache_entries_max
        self.count: int = 0

    def route(self, topic: bytes) -> Route:
        found = self._cache.get(topic)
        if found is None:
            found = self._find(topic)
            if len(topic) > CACHED_TOPIC_BYTES_MAX:
                return found  # else a publisher of long names could fill the memory
            if len(self._cache) >= self._cache_max:
                self._cache.clear()
            self._cache[topic] = found
        return found

    def has_route(self, topic: bytes) -> bool:
        """Whether this topic was routed lately."""
        return topic in self._cache

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, or replace the one this session has with the same filter."""
        topic_filter = subscription.topic_filter
        leaf = self._leaf(topic_filter)
        session_id = subscription.session.id
        if subscription.shared:
            if leaf.groups is None:
                leaf.groups = {}
            group = leaf.groups.get(subscription.shared)
            if group is None:
                group = leaf.groups[subscription.shared] = SharedGroup(subscription.shared)
            before = len(group.members)
            group.members = [m for m in group.members if m.session.id != session_id]
            self.count -= before - len(group.members)
            group.members.append(subscription)
        else:
            if session_id in leaf.subscriptions:
                self.count -= 1
            leaf.subscriptions[session_id] = subscription
        self.count += 1
        self._invalidate(topic_filter)

    def remove(self, subscription: Subscription) -> None:
        topic_filter = subscription.topic_filter
        leaf = self._leaf(topic_filter)
        session_id = subscription.session.id
        if not subscription.shared:
            if leaf.subscriptions.pop(session_id, None) is not None:
                self.count -= 1
        elif leaf.groups is not None and subscription.shared in leaf.groups:
            group = leaf.groups[subscription.shared]
            before = len(group.members)
            group.members = [m for m in group.members if m.session.id != session_id]
            self.count -= before - len(group.members)
            if not group.members:
                del leaf.groups[subscription.shared]
        if leaf.is_empty():
            self._prune(topic_filter)
        self._invalidate(topic_filter)

    def bind(self, capture: Capture) -> None:
        """Let something capture the messages of its filter."""
        leaf = self._leaf(capture.topic_filter)
        if leaf.captures is None:
            leaf.captures = []
        leaf.captures.append(capture)
        self._invalidate(capture.topic_filter)

    def unbind(self, capture: Capture) -> None:
        leaf = self._leaf(capture.topic_filter)
        if leaf.captures is not None:
            leaf.captures = [one for one in leaf.captures if one is not capture]
        if leaf.is_empty():
            self._prune(capture.topic_filter)
        self._invalidate(capture.topic_filter)

    def group(self, topic_filter: bytes, shared: bytes) -> SharedGroup | None:
        leaf = self._leaf(topic_filter)
        found = leaf.groups.get(shared) if leaf.groups is not None else None
        if leaf.is_empty():
            self._prune(topic_filter)
        return found

    def _leaf(self, topic_filter: bytes) -> _Leaf:
        if not has_wildcard(topic_filter):
            leaf = self._exact.get(topic_filter)
            if leaf is None:
                leaf = self._exact[topic_filter] = _Leaf()
            return leaf
        node = self._root
        for level in topic_filter.split(b"/"):
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        if node.leaf is None:
            node.leaf = _Leaf()
        return node.leaf

    def _prune(self, topic_filter: bytes) -> None:
        if not has_wildcard(topic_filter):
            self._exact.pop(topic_filter, None)
            return
        path = [self._root]
        levels = topic_filter.split(b"/")
        for level in levels:
            children = path[-1].children
            assert children is not None
            path.append(children[level])
        path[-1].leaf = None
        for depth in range(len(levels), 0, -1):
            node = path[depth]
            if node.children or node.leaf is not None:
                return
            children = path[depth - 1].children
            assert children is not None
            del children[levels[depth - 1]]

    def _invalidate(self, topic_filter: bytes) -> None:
        if has_wildcard(topic_filter):
            self._cache.clear()
        else:
            self._cache.pop(topic_filter, None)

    def _find(self, topic: bytes) -> Route:
        leaves: list[_Leaf] = []
        exact = self._exact.get(topic)
        if exact is not None:
            leaves.append(exact)
        if self._root.children:
            # Wildcards at the first level never match topics which start with `$`.
            _collect(self._root, topic.split(b"/"), 0, topic[:1] != b"$", leaves)
        by_session: dict[int, list[Subscription]] = {}
        groups: list[SharedGroup] = []
        captures: list[Capture] = []
        for leaf in leaves:
            if leaf.captures:
                captures.extend(leaf.captures)
            for session_id, subscription in leaf.subscriptions.items():
                found = by_session.get(session_id)
                if found is None:
                    by_session[session_id] = [subscription]
                else:
                    found.append(subscription)
            if leaf.groups is not None:
                groups.extend(leaf.groups.values())
        return Route(
            [Target(found[0].session, found) for found in by_session.values()], groups, captures
        )


def _collect(
    node: _Node, levels: list[bytes], depth: int, wildcards: bool, leaves: list[_Leaf]
) -> None:
    children = node.children
    if wildcards and children is not None:
        rest = children.get(b"#")  # matches the parent level too
        if rest is not None and rest.leaf is not None:
            leaves.append(rest.leaf)
    if depth == len(levels):
        if node.leaf is not None:
            leaves.append(node.leaf)
        return
    if children is None:
        return
    child = children.get(levels[depth])
    if child is not None:
        _collect(child, levels, depth + 1, True, leaves)
    if wildcards:
        child = children.get(b"+")
        if child is not None:
            _collect(child, levels, depth + 1, True, leaves)
