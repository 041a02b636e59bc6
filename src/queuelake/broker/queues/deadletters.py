"""Dead letters: what a message carries into its dead-letter queue, and the way back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from queuelake import names
from queuelake.broker.queues.incoming import skip_property
from queuelake.broker.webhooks import DeadLetterAlert
from queuelake.engine.commands import ACCEPTED
from queuelake.engine.effects import DeadLetter
from queuelake.protocol.properties import USER_PROPERTY, write_user
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.queues.registry import Queues

PREFIX: Final = b"dlq-"
# What is told of the first time, and what of the last.
_FIRST: Final = {
    "dlq-first-queue": "dlq-original-queue",
    "dlq-first-reason": "dlq-reason",
    "dlq-first-moved-at": "dlq-moved-at",
}


def bury(host: HostedQueue, effect: DeadLetter, record: Record, now_ms: int) -> None:
    """Put a copy of a message into the dead-letter queue of its queue, in this commit."""
    name = host.dead_letter_queue()
    if not name:
        return
    queues = host.queues
    entry = effect.entry
    message_id = record.message_id or host.id_prefixes[entry.partition] + b"%d" % entry.seq
    copy = dead_record(record, effect, host.topic, message_id, now_ms)
    put_letter(queues, name, copy, now_ms)
    url = host.alert_webhook()
    alerts = queues.alerts
    if url and alerts is not None:
        alert = DeadLetterAlert(
            queue_name=names.address(host.name),
            dlq_topic=names.address(name),
            message_id=message_id.decode(),
            failure_reason=effect.reason,
            retry_count=max(0, effect.attempts - 1),
            first_attempt=rfc3339(effect.first_ms) if effect.first_ms else "",
            moved_to_dlq_at=rfc3339(now_ms),
            total_duration=f"{(now_ms - record.ts_ms) / 1000:.3f}s",
        )
        queues.runner.after_durable(lambda: alerts.alert(url, alert))


def put_letter(queues: Queues, name: str, copy: Record, now_ms: int) -> bool:
    """Into a dead-letter queue, which is made if need be; False: it takes no more.

    No limit of a durable queue applies to what was accepted once; a quorum queue keeps its own.
    """
    quorum = queues.quorum.find(name)
    if quorum is not None:
        return quorum.accept(copy, now_ms)
    queue = queues.find(name)
    if queue is None:
        queue = queues.create(name, {}, True)
    queue.enqueue(copy, queues.partition_for(queue, copy.key), b"", ACCEPTED, now_ms)
    return True


def dead_record(
    record: Record,
    effect: DeadLetter,
    queue: bytes,
    message_id: bytes,
    now_ms: int,
    *,
    is_story_ours: bool = False,
) -> Record:
    """The copy of a message for its dead-letter queue: as it was, and why it is there.

    A producer does not write the story of its message: what looks like one is dropped, unless it
    `is_story_ours`, of the time when this message was a dead letter before.
    """
    topic = record.topic or queue
    story, own = dead_properties(without_expiry(record.properties))
    pairs = [
        (b"dlq-original-queue", queue),
        (b"dlq-original-topic", topic),
        (b"dlq-original-partition", str(effect.entry.partition).encode()),
        (b"dlq-group", effect.group.encode()),
        (b"dlq-reason", effect.reason.encode()),
        (b"dlq-delivery-count", str(effect.attempts).encode()),
        (b"dlq-first-attempt", rfc3339(effect.first_ms).encode() if effect.first_ms else b""),
        (b"dlq-moved-at", rfc3339(now_ms).encode()),
        (b"dlq-original-id", message_id),
    ]
    if effect.words:
        pairs.append((b"dlq-reason-text", effect.words[:1000].encode()))
    if is_story_ours and story:
        pairs += _history(story)
    return Record(
        b"",
        record.key,
        b"",
        record.publisher,
        own + write_user(pairs),
        record.payload,
        record.qos,
        record.priority,
        now_ms,
        0,
    )


def _history(story: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """How often it was a dead letter so far, this time included, and how it began."""
    before = story.get("dlq-count", "")
    found = {"dlq-count": str(int(before) + 1 if before.isdecimal() else 2)}
    for name, last in _FIRST.items():
        found[name] = story.get(name) or story.get(last, "")
    return [(name.encode(), value.encode()) for name, value in found.items()]


def without_expiry(properties: bytes) -> bytes:
    """A dead letter does not expire: its interval would count down for nothing."""
    return properties[5:] if properties.startswith(b"\x02") else properties


def rfc3339(ms: int) -> str:
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def dead_properties(properties: bytes) -> tuple[dict[str, str], bytes]:
    """The `dlq-*` properties of a dead letter, and its own without them."""
    found: dict[str, str] = {}
    kept: list[bytes] = []
    at = 0
    while at < len(properties):
        end = skip_property(properties, at)
        if properties[at] == USER_PROPERTY:
            key_end = at + 3 + (properties[at + 1] << 8 | properties[at + 2])
            key = properties[at + 3 : key_end]
            if key.startswith(PREFIX):
                found[key.decode()] = properties[key_end + 2 : end].decode()
                at = end
                continue
        kept.append(properties[at:end])
        at = end
    return found, b"".join(kept)
