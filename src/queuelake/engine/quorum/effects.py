"""What a quorum queue asks of the world.

The leader performs them; `LocalEffect`s every replica performs. One may be performed twice when the
leader changes, so each says how that does no harm: a number which rises, or the same state again.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Effect


@mypyc_attr(acyclic=True)
class LocalEffect(Effect):
    __slots__ = ()


@final
@mypyc_attr(acyclic=True)
class Delivery:
    """One message in the hands of one consumer; its payload is in the log, at `index`."""

    __slots__ = ("acquired", "annotations", "failures", "index", "msg_id", "size")

    def __init__(
        self,
        msg_id: int,
        index: int,
        size: int,
        acquired: int,
        failures: int,
        annotations: dict[str, str] | None,
    ) -> None:
        self.msg_id: int = msg_id
        self.index: int = index
        self.size: int = size
        self.acquired: int = acquired  # `x-acquired-count`: how often it was handed out
        self.failures: int = failures  # `x-delivery-count`: how often that failed
        self.annotations: dict[str, str] | None = annotations

    def properties(self) -> list[tuple[str, str]]:
        """User properties which tell the consumer about earlier deliveries."""
        found = [("x-acquired-count", str(self.acquired))]
        if self.failures:
            found.append(("x-delivery-count", str(self.failures)))
        return found


@final
@mypyc_attr(acyclic=True)
class Deliver(Effect):
    """Send messages to a consumer. Its half drops a `msg_id` it has seen."""

    __slots__ = ("deliveries", "key", "pid", "tag")

    def __init__(self, pid: str, tag: str, key: int, deliveries: list[Delivery]) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.key: int = key
        self.deliveries: list[Delivery] = deliveries


@final
class Release(LocalEffect):
    """Nobody needs the payloads at these indexes, once the effects before this one are done."""

    __slots__ = ("indexes",)

    def __init__(self, indexes: list[int]) -> None:
        self.indexes: list[int] = indexes


@final
class Monitor(Effect):
    """Tell with `Down` when this session ends, also when it has ended before."""

    __slots__ = ("pid",)

    def __init__(self, pid: str) -> None:
        self.pid: str = pid


@final
class Demonitor(Effect):
    __slots__ = ("pid",)

    def __init__(self, pid: str) -> None:
        self.pid: str = pid


@final
class MonitorNode(Effect):
    """Tell with `NodeUp` when this node can be reached."""

    __slots__ = ("node",)

    def __init__(self, node: str) -> None:
        self.node: str = node


@final
class Timer(Effect):
    """Give a `Timeout` of this name at that time. One of each name: a new one replaces it."""

    __slots__ = ("at_ms", "name")

    def __init__(self, name: int, at_ms: int) -> None:
        self.name: int = name
        self.at_ms: int = at_ms


@final
class QueueStatus(Effect):
    """Tell an enqueuer whether it may publish. `index` rises: an older one is void."""

    __slots__ = ("index", "pid", "rejects")

    def __init__(self, pid: str, rejects: bool, index: int) -> None:
        self.pid: str = pid
        self.rejects: bool = rejects
        self.index: int = index


@final
class LeaderChange(Effect):
    """Tell an enqueuer to send again what was not applied: numbered, so nothing is doubled."""

    __slots__ = ("pid",)

    def __init__(self, pid: str) -> None:
        self.pid: str = pid


@final
class ConsumerStatus(Effect):
    """Tell a consumer whether it is the active one. `index` rises: an older one is void."""

    __slots__ = ("active", "index", "key", "pid", "tag")

    def __init__(self, pid: str, tag: str, key: int, active: bool, index: int) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.key: int = key
        self.active: bool = active
        self.index: int = index


@final
class ConsumerTimedOut(Effect):
    """These were held too long and are taken back; the subscription ends. Once is enough."""

    __slots__ = ("ids", "key", "pid", "tag")

    def __init__(self, pid: str, tag: str, key: int, ids: list[int]) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.key: int = key
        self.ids: list[int] = ids


@final
class DeadLetter(Effect):
    """Copy a message to the dead letters, if it can be done. `index` tells a second copy."""

    __slots__ = ("at_ms", "delivery", "index", "reason")

    def __init__(self, index: int, delivery: Delivery, reason: str, at_ms: int) -> None:
        self.index: int = index
        self.delivery: Delivery = delivery
        self.reason: str = reason
        self.at_ms: int = at_ms


@final
class DeadLetterDeliver(Effect):
    """Copy messages to the dead letters and settle each when every target has confirmed it.

    The `msg_id`s rise, and a message keeps its index, by which a target may know a second copy.
    """

    __slots__ = ("deliveries", "pid", "reasons")

    def __init__(self, pid: str, deliveries: list[Delivery], reasons: list[str]) -> None:
        self.pid: str = pid
        self.deliveries: list[Delivery] = deliveries
        self.reasons: list[str] = reasons  # of each


@final
class Eol(Effect):
    """Tell a session that its queue is deleted. Once is enough."""

    __slots__ = ("pid",)

    def __init__(self, pid: str) -> None:
        self.pid: str = pid


@final
class QueueDeleted(LocalEffect):
    """The queue is gone: whatever is kept for it may go."""

    __slots__ = ()
