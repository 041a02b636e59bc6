"""Small rows of the store: sessions, subscriptions, cursors, wills, retained messages."""

from __future__ import annotations

import hashlib

import msgspec

from queuelake.protocol.message import Message
from queuelake.storage.queue_rows import decode_message, encode_message, u64

KEY_BYTES_MAX = 500  # LMDB ends at 511


class SessionRecord(msgspec.Struct, array_like=True):
    """A persistent session. `disconnected_ms` 0: its client was connected when this was written."""

    client_id: str
    version: int
    expiry_s: int
    disconnected_ms: int


class SubscriptionRecord(msgspec.Struct, array_like=True):
    """One filter, as the client wrote it."""

    topic_filter: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    subscription_id: int
    user: list[tuple[bytes, bytes]] = []  # user properties, where they mean something


class Cursor(msgspec.Struct, array_like=True):
    """What a session has settled of its queue, and its QoS 2 state in both directions."""

    settled_seq: int
    sent_seq: int
    settled: list[int]
    released: list[int]
    inbound: list[int]


class WillRecord(msgspec.Struct, array_like=True):
    """A will to be published. `due_ms` 0: its client is connected."""

    client_id: str
    delay_s: int
    due_ms: int
    message: bytes


encode = msgspec.msgpack.encode
decode_session = msgspec.msgpack.Decoder(SessionRecord).decode
decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
decode_cursor = msgspec.msgpack.Decoder(Cursor).decode
decode_will = msgspec.msgpack.Decoder(WillRecord).decode


def subscription_key(session_id: int, topic_filter: bytes) -> bytes:
    return u64(session_id) + hashlib.blake2b(topic_filter, digest_size=16).digest()


def retained_key(topic: bytes) -> bytes:
    """The topic itself, so that the table is in topic order; long ones end in their hash."""
    if len(topic) < KEY_BYTES_MAX:
        return topic
    return topic[: KEY_BYTES_MAX - 16] + hashlib.blake2b(topic, digest_size=16).digest()


def retained_value(message: Message) -> bytes:
    return encode_message(message)


def retained_message(value: bytes) -> Message:
    return decode_message(value)
