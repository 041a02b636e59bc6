"""The grammar of `$ECQ/...` topics. Pure.

$ECQ/w/{owner}/{key}     publish: write; the key may have several levels
$ECQ/{owner}/$rewind     publish: read again
$ECQ/{owner}/#           subscribe: read, at QoS 1, by the client of this id alone
$ECQ/{owner}/{key}       what the owner gets
"""

from __future__ import annotations

from typing import Final, final

from queuelake.protocol import reasons
from queuelake.protocol.topics import is_shared, split_shared

LEVEL: Final = b"$ECQ"
PREFIX: Final = b"$ECQ/"
WRITE: Final = b"$ECQ/w/"
WRITE_LEVEL: Final = b"w"
REWIND: Final = b"/$rewind"
_AMBIGUOUS: Final = (b"/", b"+", b"#")


@final
class WriteTopic:
    """`problem` in words: it is none."""

    __slots__ = ("key", "owner", "problem")

    def __init__(self, topic: bytes) -> None:
        start = len(WRITE)
        end = topic.find(b"/", start)
        self.owner: bytes = topic[start:end] if end >= 0 else topic[start:]
        self.key: bytes = topic[end + 1 :] if end >= 0 else b""
        self.problem: str = ""
        if not self.owner:
            self.problem = "names no owner; write $ECQ/w/{owner}/{key}"
        elif not self.key:
            self.problem = "has no key; write $ECQ/w/{owner}/{key}"
        elif self.owner == WRITE_LEVEL:
            self.problem = "is for the client 'w', which cannot own a mailbox"


def rewound_owner(topic: bytes) -> bytes:
    """Whose mailbox is to be read again; empty: the topic asks for no such thing."""
    if not topic.endswith(REWIND) or not topic.startswith(PREFIX):
        return b""
    end = len(topic) - len(REWIND)
    if end <= len(PREFIX):
        return b""  # a slice of less than nothing is an error where this is compiled
    owner = topic[len(PREFIX) : end]
    return b"" if b"/" in owner or owner == WRITE_LEVEL else owner


def address(owner: bytes) -> bytes:
    return PREFIX + owner


def is_mailbox_filter(topic_filter: bytes) -> bool:
    if is_shared(topic_filter):
        topic_filter = split_shared(topic_filter)[1]
    return topic_filter == LEVEL or topic_filter.startswith(PREFIX)


def subscription_problem(client: bytes, topic_filter: bytes, qos: int) -> tuple[int, str]:
    """Why a client may not subscribe to a mailbox: a reason code and words, or 0.

    No permission changes this: a mailbox is read by its owner.
    """
    shown = topic_filter.decode("utf-8", "replace")[:100]
    if topic_filter != PREFIX + client + b"/#":
        problem = f"{shown!r}: a mailbox is read by its owner alone, at $ECQ/{{client id}}/#"
        return reasons.NOT_AUTHORIZED, problem
    if client == WRITE_LEVEL or any([one in client for one in _AMBIGUOUS]):
        name = client.decode("utf-8", "replace")[:100]
        problem = f"client {name!r} cannot own a mailbox: its id is 'w' or holds '/', '+' or '#'"
        return reasons.TOPIC_FILTER_INVALID, problem
    if qos != 1:
        return reasons.NOT_AUTHORIZED, f"{shown!r}: a mailbox is read at QoS 1, not at QoS {qos}"
    return 0, ""
