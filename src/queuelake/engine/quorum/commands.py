"""What can be asked of a quorum queue: the entries of its log.

A session is named by a `pid`: the node where its client half runs, a slash, and a name which that
node uses only once. Payloads are in the log, at the index of their command, never in a command.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Command
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.engine.quorum.policy import UNSET, QuorumPolicy

# Timers, by what they are for.
EXPIRY: Final = 0  # a message has lived long enough
CONSUMER_TIMEOUT: Final = 1  # a message was held too long
DISCONNECTED: Final = 2  # the node of a consumer was away too long
DELAYED: Final = 3  # a message may be handed out again
IDLE: Final = 4  # nobody used the queue
TIMERS: Final = 5

DELIVERY_TIME: Final = "x-opt-delivery-time"
DEFERRAL_TOKEN: Final = "x-opt-deferral-token"


@final
class RegisterEnqueuer(Command):
    __slots__ = ("pid",)

    def __init__(self, pid: str) -> None:
        self.pid: str = pid


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Enqueue(Command):
    """A message. Those of one enqueuer are numbered from 1; without a number it is not tracked."""

    __slots__ = ("due_ms", "pid", "priority", "seq", "size", "ttl_ms")

    def __init__(
        self,
        pid: str,
        seq: int,
        size: int,
        priority: int = PRIORITY_DEFAULT,
        ttl_ms: int = UNSET,
        due_ms: int = 0,
    ) -> None:
        self.pid: str = pid
        self.seq: int = seq  # 0: none
        self.size: int = size  # properties and payload
        self.priority: int = priority
        self.ttl_ms: int = ttl_ms
        self.due_ms: int = due_ms  # aside until then; 0: ready at once


@final
class Checkout(Command):
    """A consumer comes, or changes its terms, or comes back."""

    __slots__ = ("credited", "pid", "prefetch", "priority", "tag", "timeout_ms")

    def __init__(
        self,
        pid: str,
        tag: str,
        prefetch: int = 0,
        priority: int = 0,
        timeout_ms: int = UNSET,
        credited: bool = False,
    ) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.prefetch: int = prefetch  # of a credited one: its first credit
        self.priority: int = priority
        self.timeout_ms: int = timeout_ms  # UNSET: as the queue says
        self.credited: bool = credited  # only `Credit` lets it have more


@final
class Cancel(Command):
    """A consumer wants no more. `remove`: what it holds returns, else it may still settle it."""

    __slots__ = ("pid", "remove", "tag")

    def __init__(self, pid: str, tag: str, remove: bool = False) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.remove: bool = remove


@final
class Dequeue(Command):
    """One message, now. `settled`: it is gone with that."""

    __slots__ = ("pid", "settled", "tag")

    def __init__(self, pid: str, tag: str, settled: bool) -> None:
        self.pid: str = pid
        self.tag: str = tag
        self.settled: bool = settled


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Settle(Command):
    """Done with these."""

    __slots__ = ("ids", "key")

    def __init__(self, key: int, ids: list[int]) -> None:
        self.key: int = key
        self.ids: list[int] = ids


@final
class Return(Command):
    """Not now: to be handed out again, and nobody's fault."""

    __slots__ = ("ids", "key")

    def __init__(self, key: int, ids: list[int]) -> None:
        self.key: int = key
        self.ids: list[int] = ids


@final
class Discard(Command):
    """Never again: to the dead letters as rejected."""

    __slots__ = ("ids", "key")

    def __init__(self, key: int, ids: list[int]) -> None:
        self.key: int = key
        self.ids: list[int] = ids


@final
class Modify(Command):
    """Return with a note; may say when, or under which token, it is to be handed out again."""

    __slots__ = ("annotations", "delivery_failed", "ids", "key", "undeliverable_here")

    def __init__(
        self,
        key: int,
        ids: list[int],
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> None:
        self.key: int = key
        self.ids: list[int] = ids
        self.delivery_failed: bool = delivery_failed
        self.undeliverable_here: bool = undeliverable_here  # a discard, with a note
        self.annotations: dict[str, str] | None = annotations


@final
class Requeue(Command):
    """Return of one message whose payload is in the log again, here: its old place is free.

    For a log which can only be cut at its front: a message which returns all the time would pin it.
    """

    __slots__ = ("key", "msg_id", "size")

    def __init__(self, key: int, msg_id: int, size: int) -> None:
        self.key: int = key
        self.msg_id: int = msg_id
        self.size: int = size


@final
class Credit(Command):
    """A credited consumer takes so many more, counted from what it had got when it said so."""

    __slots__ = ("credit", "delivery_count", "drain", "key")

    def __init__(self, key: int, credit: int, delivery_count: int, drain: bool = False) -> None:
        self.key: int = key
        self.credit: int = credit
        self.delivery_count: int = delivery_count
        self.drain: bool = drain  # what cannot be used at once is void


@final
class Purge(Command):
    """Drop every message which no consumer holds, and the backlog of dead letters."""

    __slots__ = ()


@final
class UpdateConfig(Command):
    __slots__ = ("policy",)

    def __init__(self, policy: QuorumPolicy) -> None:
        self.policy: QuorumPolicy = policy


@final
class Down(Command):
    """A session ended; `noconnection`: its node cannot be reached, and it may be alive."""

    __slots__ = ("noconnection", "pid")

    def __init__(self, pid: str, noconnection: bool = False) -> None:
        self.pid: str = pid
        self.noconnection: bool = noconnection


@final
class NodeUp(Command):
    __slots__ = ("node",)

    def __init__(self, node: str) -> None:
        self.node: str = node


@final
class PurgeNodes(Command):
    """These nodes have left for good."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: list[str]) -> None:
        self.nodes: list[str] = nodes


@final
class Timeout(Command):
    """A timer went off."""

    __slots__ = ("name",)

    def __init__(self, name: int) -> None:
        self.name: int = name


@final
class DelayedRetry(Command):
    """So many delayed messages are due now, whatever their time; the next to come first."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count: int = count


@final
class AssignDeferred(Command):
    """Hand the messages deferred under these tokens to a consumer, as far as its credit goes."""

    __slots__ = ("key", "tokens")

    def __init__(self, key: int, tokens: list[str]) -> None:
        self.key: int = key
        self.tokens: list[str] = tokens


@final
class DeadLetterCheckout(Command):
    """The worker of a new leader takes over the backlog of dead letters."""

    __slots__ = ("pid", "prefetch")

    def __init__(self, pid: str, prefetch: int = 32) -> None:
        self.pid: str = pid
        self.prefetch: int = prefetch


@final
class DeadLetterSettle(Command):
    """Every target has confirmed these."""

    __slots__ = ("ids", "pid")

    def __init__(self, pid: str, ids: list[int]) -> None:
        self.pid: str = pid  # a worker which was replaced has no say
        self.ids: list[int] = ids


@final
class GarbageCollection(Command):
    """Give back what is kept for nothing."""

    __slots__ = ()


@final
class Delete(Command):
    __slots__ = ()
