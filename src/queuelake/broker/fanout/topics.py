"""The topics of one vehicle, and the subscription by which it gets what is published there."""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.auth.filters import covers
from queuelake.broker.session import Session, Subscription

LEVELS_MAX: Final = 6  # of a filter whose wider ones are all tried, rather than those there are


@final
class VehicleTopics:
    """`{before}{VIN}{behind}{request_id}`."""

    __slots__ = ("_before", "_behind")

    def __init__(self) -> None:
        self._before: bytes = b""
        self._behind: bytes = b"/"

    def use_prefix(self, before: str, behind: str) -> None:
        self._before, self._behind = before.encode(), behind.encode() + b"/"

    def filter_of(self, vin: str) -> bytes:
        """Of all its requests."""
        return self._before + vin.encode() + self._behind + b"+"

    def subscription(self, session: Session, wanted: bytes) -> Subscription | None:
        """By which it gets messages of ours: that of its filter as it is, or a wider one."""
        subscriptions = session.subscriptions
        found = subscriptions.get(wanted)
        if found is not None and found.qos:
            return found
        levels = wanted.split(b"/")
        if len(levels) <= LEVELS_MAX and len(subscriptions) > 2 << len(levels):
            # It has more filters than there are wider ones.
            return _find_any(subscriptions, wider(levels), levels)
        return _find_any(subscriptions, list(subscriptions), levels)


def _find_any(
    subscriptions: dict[bytes, Subscription], filters: list[bytes], levels: list[bytes]
) -> Subscription | None:
    for one in filters:
        found = subscriptions.get(one)
        if found is not None and found.qos and not found.shared:
            if covers(found.topic_filter.split(b"/"), levels):
                return found
    return None


def wider(levels: list[bytes]) -> list[bytes]:
    """Every filter which may cover this one, itself among them."""
    found: list[bytes] = [b"#"]
    heads: list[bytes] = [b""]
    for level in levels:
        longer: list[bytes] = []
        for head in heads:
            longer.append(head + b"+/")
            if level != b"+":
                longer.append(head + level + b"/")
        found += [head + b"#" for head in longer]
        heads = longer
    return found + [head[:-1] for head in heads]
