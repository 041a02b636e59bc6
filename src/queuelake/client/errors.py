"""What a call of the SDK may raise, beside the errors of `queuelake.errors`.

A broker's refusal becomes the class of its reason code; the message names the topic, the code and
the broker's own words. `OSError` and the errors of the MQTT library never reach the caller.
"""

from __future__ import annotations

from queuelake.errors import (
    BadCredentialsError,
    BannedError,
    BrokerDownError,
    NotAuthorizedError,
    QueuelakeError,
    RefusedError,
)
from queuelake.names import BadAddressError

NO_MATCHING_SUBSCRIBERS = 0x10
FAILURE_MIN = 0x80
NOT_AUTHORIZED = 0x87
SESSION_TAKEN_OVER = 0x8E
PACKET_TOO_LARGE = 0x95
QUOTA_EXCEEDED = 0x97

# CONNACK says these when the broker, not the client, is the reason: another attempt may succeed.
_LATER = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})


class QueueFullError(RefusedError):
    """The queue holds as many messages as it may: publish again when consumers caught up."""

    reason_code = QUOTA_EXCEEDED
    http_status = 409


class MessageTooLargeError(RefusedError):
    """The message is longer than the queue or the broker accepts: it was not stored."""

    reason_code = PACKET_TOO_LARGE
    http_status = 413


class SessionTakenOverError(RefusedError):
    """Another client connected with this client id: give every client its own."""

    reason_code = SESSION_TAKEN_OVER
    http_status = 409


class ClientClosedError(QueuelakeError):
    """The client is not open: use it inside `with`, and not after it."""


class ConfirmTimeoutError(QueuelakeError, TimeoutError):
    """No answer in time. A publish may be stored or not: repeat it with the same message id."""


class RequestTimeoutError(QueuelakeError, TimeoutError):
    """No reply in time; one which comes later is ignored."""


def connect_refusal(address: str, code: int, reason: str) -> QueuelakeError:
    """A CONNACK with a failure code as an error; a `BrokerDownError` is worth another attempt."""
    classes: dict[int, type[QueuelakeError]] = {
        0x86: BadCredentialsError,
        NOT_AUTHORIZED: NotAuthorizedError,
        0x8A: BannedError,
    }
    default = BrokerDownError if code in _LATER else RefusedError
    return _refusal(classes.get(code, default), f"{address}: connection", code, reason)


def publish_refusal(topic: str, code: int, reason: str) -> QueuelakeError:
    """A PUBACK with a failure code as an error."""
    classes: dict[int, type[QueuelakeError]] = {
        NOT_AUTHORIZED: NotAuthorizedError,
        0x90: BadAddressError,
        PACKET_TOO_LARGE: MessageTooLargeError,
    }
    if topic.startswith("$queue/"):
        classes[QUOTA_EXCEEDED] = QueueFullError
    return _refusal(classes.get(code, RefusedError), f"publish to {topic!r}", code, reason)


def subscribe_refusal(topic_filter: str, code: int, reason: str) -> QueuelakeError:
    """A SUBACK with a failure code as an error."""
    classes: dict[int, type[QueuelakeError]] = {
        NOT_AUTHORIZED: NotAuthorizedError,
        0x8F: BadAddressError,
    }
    what = f"subscription to {topic_filter!r}"
    return _refusal(classes.get(code, RefusedError), what, code, reason)


def _refusal(kind: type[QueuelakeError], what: str, code: int, reason: str) -> QueuelakeError:
    return kind.because(code, f"{what} refused with 0x{code:02x}: {reason}")
