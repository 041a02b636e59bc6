"""A message queue as the broker knows it, awake or not: what it is, and how it is filled.

It is bound to its topic filter in the router, so a publish which matches no queue costs nothing,
and one which does finds its queues with the subscribers of its topic, in one lookup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import msgspec

from queuelake.broker.message_queues.metrics import MqClassMetrics
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.broker.router import NOT_TAKEN, Capture
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.expressions import EvaluationError, Expression, parse_expression
from queuelake.mq_settings import MqSettings
from queuelake.protocol import reasons
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.message_queues.host import MessageQueueHost
    from queuelake.broker.message_queues.service import MessageQueues
    from queuelake.protocol.message import Message
    from queuelake.storage.queue_records import QueueRecord

log = logging.getLogger("queuelake.message_queues")

SYS_TOPICS: Final = b"$SYS/"
WARN_EVERY_MS: Final = 60_000


@final
class Definition(Capture):
    """One queue; `host` while it is awake."""

    __slots__ = (
        "_expression",
        "_warned_ms",
        "address",
        "host",
        "insert_errors",
        "inserted",
        "key_errors",
        "metrics",
        "name",
        "received",
        "service",
        "settings",
    )

    def __init__(self, service: MessageQueues, settings: MqSettings) -> None:
        self.service: MessageQueues = service
        self.settings: MqSettings = settings
        self.name: str = settings.name
        self.address: str = _address(settings)
        self.topic_filter = settings.topic_filter.encode()
        self.is_lenient = True
        self.host: MessageQueueHost | None = None
        self.received: int = 0
        self.inserted: int = 0
        self.insert_errors: int = 0
        self.key_errors: int = 0
        self.metrics: MqClassMetrics = service.metrics.of(
            settings.is_lastvalue, settings.is_limited
        )
        self._expression: Expression | None = _expression(settings)
        self._warned_ms: int = 0

    def change(self, settings: MqSettings) -> None:
        self.settings = settings
        self.metrics = self.service.metrics.of(settings.is_lastvalue, settings.is_limited)
        self._expression = _expression(settings)

    def adopt(self, record: QueueRecord) -> None:
        """What the store says is what there is."""
        self.change(msgspec.json.decode(record.settings, type=MqSettings))

    # Filling it

    def capture(self, message: Message) -> int:
        """Store a message which matches; NOT_TAKEN: it does not belong here."""
        if message.topic.startswith(SYS_TOPICS):
            return NOT_TAKEN
        self.received += 1
        self.metrics.received_messages += 1
        key = b""
        expression = self._expression
        publisher = message.publisher.encode()
        if expression is not None:
            if expression.is_client_id:
                key = publisher
            elif expression.is_topic:
                key = message.topic
            else:
                try:
                    key = expression.evaluate(self.service.fields(message))
                except EvaluationError as error:
                    self._has_no_key(error, message)
                    return NOT_TAKEN
        host = self.host or self.service.awake(self)
        host.active_ms = message.ts_ms
        record = Record(
            message.topic,
            key,
            b"",
            publisher,
            stored_properties(message),
            message.payload(),
            message.qos,
            PRIORITY_DEFAULT,
            message.ts_ms,
            message.expires_ms,
        )
        if host.insert(record, message.ts_ms):
            self._is_too_large(message, len(record.payload))
            return reasons.UNSPECIFIED_ERROR
        self.inserted += 1
        self.metrics.inserted_messages += 1
        return 0

    def stored(self, count: int, latency_ms: int) -> None:
        """So many messages are durable, which waited so long at most."""
        self.metrics.insert_latency.observe_many(float(latency_ms), count)

    def _is_too_large(self, message: Message, size: int) -> None:
        self.insert_errors += 1
        self.metrics.insert_errors += 1
        if self._may_warn(message):
            log.warning(
                "%s: a message of %d bytes is not stored, the queue holds at most %d (%d so far)",
                self.address,
                size,
                self.settings.bytes_max,
                self.insert_errors,
            )

    def _may_warn(self, message: Message) -> bool:
        """Whoever publishes what cannot be stored seldom does it once."""
        if message.ts_ms - self._warned_ms < WARN_EVERY_MS:
            return False
        self._warned_ms = message.ts_ms
        return True

    def _has_no_key(self, error: EvaluationError, message: Message) -> None:
        self.key_errors += 1
        if self._may_warn(message):
            log.warning(
                "%s: a message of %r has no key and is not stored: %s (%d so far)",
                self.address,
                message.publisher,
                error,
                self.key_errors,
            )


def stored_properties(message: Message) -> bytes:
    """All properties of a message, its expiry first: there it is found again."""
    own = message.properties()
    if not message.expires_ms:
        return own
    at = message.expiry_at - (message.payload_at - len(own))
    return EXPIRY + own[at : at + 4] + own[: at - 1] + own[at + 4 :]


def _address(settings: MqSettings) -> str:
    """How clients subscribe to it."""
    if settings.name.startswith("/"):
        return f"$q/{settings.topic_filter}"
    return f"$queue/{settings.name}"


def _expression(settings: MqSettings) -> Expression | None:
    return parse_expression(settings.key_expression) if settings.is_lastvalue else None
