"""What can be asked about the broker as such: subscriptions, retained messages, who may do what.

As in control.py, the Structs are the answers of the broker and of the REST API alike.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

# Operations, with their arguments.
SUBSCRIPTIONS: Final = "subscriptions"  # limit, cursor, client_id, topic -> SubscriptionPage
RETAINED: Final = "retained"  # limit, cursor, filter -> RetainedPage
RETAINED_MESSAGE: Final = "retained_message"  # topic -> RetainedMessage
RETAINED_DELETE: Final = "retained_delete"  # topic -> None
BANS: Final = "bans"  # -> BanList
BAN_ADD: Final = "ban_add"  # kind, value, seconds (0: for ever) -> BanInfo
BAN_REMOVE: Final = "ban_remove"  # kind, value -> None
ACL_TEST: Final = "acl_test"  # client_id, username, ip, platform, action, topic -> AclAnswer
SETTINGS: Final = "settings"  # -> SettingsInForce

ITEMS_PER_PAGE_MAX: Final = 1_000
PAYLOAD_BYTES_MAX: Final = 4 * 1024 * 1024  # a longer one is cut: a control frame has a limit

BanKind = Literal["clientid", "username", "ip"]
Action = Literal["publish", "subscribe"]
Milliseconds = Annotated[int, Meta(description="milliseconds since 1970 (UTC)")]
Next = Annotated[str | None, Meta(description="`cursor` of the next page; null on the last one")]


class SubscriptionInfo(Struct, frozen=True):
    client_id: str
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    subscription_id: Annotated[int, Meta(description="0: none")] = 0


class SubscriptionPage(Struct, frozen=True):
    """`subscriptions`: sorted by client id and filter."""

    subscriptions: list[SubscriptionInfo]
    next: Next = None


class RetainedInfo(Struct, frozen=True):
    topic: str
    payload_bytes: int
    qos: int
    publisher: str = ""
    published_at_ms: Milliseconds = 0
    expires_at_ms: Annotated[int, Meta(description="0: never")] = 0


class RetainedPage(Struct, frozen=True):
    """`retained`: sorted by topic."""

    messages: list[RetainedInfo]
    next: Next = None


class RetainedMessage(Struct, frozen=True):
    info: RetainedInfo
    payload: Annotated[bytes, Meta(description="base64; cut when it is very long")]


class BanInfo(Struct, frozen=True):
    kind: BanKind
    value: str
    until_ms: Annotated[int | None, Meta(description="null: for ever")] = None


class BanList(Struct, frozen=True):
    """`bans`: those made while the broker runs, which end with it; the file has its own."""

    bans: list[BanInfo]


class AclAnswer(Struct, frozen=True):
    """`acl_test`: whether such a client may do this."""

    allowed: bool
    platform: Annotated[bool, Meta(description="whether it counts as a platform account")]


class SettingsInForce(Struct, frozen=True):
    """`settings`: all of them, as the file would say them, without secrets."""

    settings: dict[str, Any]
    origins: Annotated[
        dict[str, str], Meta(description="where a value came from which is no default, by its key")
    ] = {}
