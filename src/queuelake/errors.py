"""Every error of Queuelake: one root, three branches, split by whose fault it is.

- `PeerError`: a client broke the protocol. Close its connection; nobody needs to be woken.
- `RefusedError`: a rule or a limit said no. The caller may change its request and try again.
- `StorageError`: we could not keep a promise. Nothing of the failed work was confirmed.

Each class knows its MQTT 5 reason code and its HTTP status; each message names the thing, the
value and the limit.
"""

from __future__ import annotations

from typing import Self


class QueuelakeError(Exception):
    """The root: catch it at the edge, where an error becomes an answer."""

    reason_code = 0x80
    http_status = 500
    code = "INTERNAL_ERROR"

    @classmethod
    def because(cls, reason_code: int, message: str) -> Self:
        """An error whose reason code is that of the case, not of its class."""
        error = cls(message)
        error.reason_code = reason_code
        return error


class PeerError(QueuelakeError):
    """The peer sent what no peer may send: answer with the reason code and close."""

    reason_code = 0x82
    http_status = 400
    code = "BAD_REQUEST"


class MalformedPacketError(PeerError):
    """The bytes are not a packet of this protocol."""

    reason_code = 0x81


class ProtocolViolationError(PeerError):
    """The packet is well formed but may not be sent here, now, or with these values."""

    reason_code = 0x82


class UnsupportedProtocolError(PeerError):
    """CONNECT names a protocol or level this server does not speak."""

    reason_code = 0x84


class PacketTooLargeError(PeerError):
    """The packet is longer than the limit this server announced."""

    reason_code = 0x95


class RefusedError(QueuelakeError):
    """A limit or a rule said no: the caller may act on the message and come again."""

    reason_code = 0x83
    http_status = 400
    code = "BAD_REQUEST"


class ConfigError(RefusedError):
    """The configuration is wrong: `mistakes` holds one line for each mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class BadSettingsError(RefusedError):
    """What was asked for cannot have these settings: `mistakes` has one entry for each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class StorageError(QueuelakeError):
    """The store could not do its work: nothing of the failed group was confirmed."""

    http_status = 503
    code = "SERVICE_UNAVAILABLE"


class DataLostError(StorageError):
    """Rows which were promised to the archive are gone: read without `failOnDataLoss`, or let the
    archive keep up (`lake.hold`)."""

    http_status = 410
    code = "DATA_LOST"


class StoreLockedError(StorageError):
    """Another process has this data directory open for writing."""


class StoreFormatError(StorageError):
    """The data directory was written by another format version."""


class BadCredentialsError(RefusedError):
    """User name, password or token is wrong. The text never says which: it would help guessing."""

    reason_code = 0x86
    http_status = 401
    code = "BAD_CREDENTIALS"


class NotAuthorizedError(RefusedError):
    """The client is not allowed to do this, or did not prove who it is."""

    reason_code = 0x87
    http_status = 403
    code = "NOT_AUTHORIZED"


class BannedError(RefusedError):
    """A ban, or too many failed logins: refused before any password is looked at."""

    reason_code = 0x8A
    http_status = 403
    code = "BANNED"


class BrokerDownError(QueuelakeError):
    """The broker does not answer: start it, or look into its log."""

    reason_code = 0x88
    http_status = 503
    code = "BROKER_DOWN"


class NotFoundError(RefusedError):
    """There is no such thing: look at its name."""

    http_status = 404
    code = "NOT_FOUND"


class ChangedError(RefusedError):
    """Somebody else changed it meanwhile: read it again, and decide anew."""

    http_status = 412
    code = "PRECONDITION_FAILED"


class ConflictError(RefusedError):
    """It is there already, or something else is under way: look at it first."""

    http_status = 409
    code = "CONFLICT"


class NameTakenError(RefusedError):
    """A queue of this name is there, of this kind or of another: choose another name."""

    reason_code = 0x90
    http_status = 400
    code = "ALREADY_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a queue {name!r} already; a name belongs to one queue")


class LeaseTakenError(RefusedError):
    """Somebody else may change the lake now: wait for the end of that job, or cancel it."""

    http_status = 409
    code = "LEASE_TAKEN"


class LeaseLostError(RefusedError):
    """The lease of a lake was given to somebody else: commit nothing more, begin anew."""

    http_status = 409
    code = "LEASE_LOST"


class AnswerError(QueuelakeError):
    """The broker refused the call, or failed in it: code and HTTP status are the broker's."""

    def __init__(self, code: str, message: str, http_status: int) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status


class FrameError(QueuelakeError):
    """The other side does not speak this protocol: close the connection."""
