"""The way back of a dead letter: into the queue it came from, as if it were published now.

The message joins the end of its original partition and leaves its dead-letter queue in one commit,
so it is never in none of them, nor in both. No limit applies to it: it was accepted once.
"""

from __future__ import annotations

from queuelake import names
from queuelake.broker import queue_views
from queuelake.broker.queues.deadletters import dead_properties
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.quorum.publishing import full
from queuelake.control_queues import Redriven
from queuelake.engine import commands as c
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons
from queuelake.storage.chunk import Record


def letters_of(host: DurableHost | QuorumHost) -> DurableHost | None:
    """The queue which takes the dead letters of another, if there is one yet."""
    name = host.dead_letter_queue()
    return host.queues.find(name) if name else None


def letters_count(host: DurableHost | QuorumHost) -> int:
    """How many messages the dead-letter queue of another has, of whatever type it is."""
    name = host.dead_letter_queue()
    quorum = host.queues.quorum.find(name) if name else None
    if quorum is not None:
        return quorum.machine.total
    letters = letters_of(host)
    return letters.machine.depth() if letters is not None else 0


def redrive(host: DurableHost | QuorumHost, message_id: str, now_ms: int) -> Redriven:
    """Put a dead letter back; it is so when the commit is durable.

    Raises:
        NotFoundError: there is none with this id which came from this queue.
        RefusedError: it is a quorum queue, which keeps its limits.
    """
    address = names.address(host.name)
    letters = letters_of(host)
    place = queue_views.message_place(letters, message_id) if letters is not None else None
    if letters is not None and place is not None:
        dead = queue_views.find_record(letters, place, now_ms)
        if dead is not None:
            story, own = dead_properties(dead.properties)
            if story.get("dlq-original-queue") == address:
                record = _revived(host, dead, story, own, now_ms)
                done = _put_back(host, record, story, now_ms)
                letters.apply(c.Remove(*place), now_ms)
                return done
    raise NotFoundError(f"queue {address!r} has no dead letter {message_id!r}")


def _put_back(
    host: DurableHost | QuorumHost, record: Record, story: dict[str, str], now_ms: int
) -> Redriven:
    address = names.address(host.name)
    if isinstance(host, QuorumHost):
        if not host.accept(record, now_ms):
            raise RefusedError.because(reasons.QUOTA_EXCEEDED, full(host))
        return Redriven(address, host.message_id(record).decode(), 0)
    partition = _partition(host, story, record)
    host.enqueue(record, partition, b"", c.ACCEPTED, now_ms)
    return Redriven(address, queue_views.message_id(host, partition, record).decode(), partition)


def _partition(host: DurableHost, story: dict[str, str], dead: Record) -> int:
    number = story.get("dlq-original-partition", "")
    # Who publishes to a dead-letter queue may write what he likes.
    if number.isdecimal() and len(number) < 5 and int(number) < len(host.machine.partitions):
        return int(number)
    return host.queues.partition_for(host, dead.key)  # the queue was made anew meanwhile


def _revived(
    host: DurableHost | QuorumHost, dead: Record, story: dict[str, str], own: bytes, now_ms: int
) -> Record:
    topic = story.get("dlq-original-topic", "").encode()
    former_id = story.get("dlq-original-id", "").encode()
    if former_id.startswith(host.topic + b":"):
        former_id = b""  # the broker's: it says the offset, which is another one now
    ttl_ms = max(0, host.machine.policy.ttl_ms)
    return Record(
        b"" if topic == host.topic else topic,
        dead.key,
        former_id,
        dead.publisher,
        own,
        dead.payload,
        dead.qos,
        dead.priority,
        now_ms,
        now_ms + ttl_ms if ttl_ms else 0,
    )
