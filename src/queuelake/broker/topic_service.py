"""Topics below a `$` level of their own which no subscriber gets: publishing there asks for
something.

`Delivery.services` has them by their first level. A publish which a service takes goes nowhere
else: not to subscribers, queues or the retained messages.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr, trait

if TYPE_CHECKING:
    from queuelake.broker.session import Session
    from queuelake.protocol.message import Message


LATER: Final = -1  # the work is under way: `inbound.complete` when it is done and durable


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class TopicService:
    """The attributes are about the last publish; the caller reads them right after it."""

    durable: bool  # it is part of the commit group: its answer has to wait for that
    problem: str  # in words, why it was refused
    closes: bool  # refused in a way which ends the connection
    packet_id: int  # of the publish, set by the caller; 0: nobody waits for an answer

    @abstractmethod
    def publish(self, message: Message, session: Session | None) -> int:
        """Take a message; `session` is None for a will. Returns 0, LATER, or an MQTT
        reason code."""

    def acknowledged(self, session: Session, topic: bytes, mark: bytes, reason: int) -> None:
        """PUBACK for a message which it put in line itself; `mark` begins with its first level."""

    def refused(self, topic: bytes) -> None:
        """A publish was refused before it came here: the client has no right to it."""
        return
