"""What is published below `$ECQ/`: a write, a rewind, or a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.ecq.rewinding import BadRewindError, target
from queuelake.broker.ecq.service import Mailboxes
from queuelake.broker.ecq.topics import LEVEL, REWIND, WRITE, WriteTopic, rewound_owner
from queuelake.broker.ecq.writing import Write, record_of
from queuelake.broker.topic_service import TopicService
from queuelake.protocol import reasons
from queuelake.protocol.message import Message
from queuelake.protocol.packets import V5

if TYPE_CHECKING:
    from queuelake.broker.session import Session
    from queuelake.ecq_settings import EcqConfig


@final
class MailboxTopics(TopicService):
    """Of all mailboxes."""

    __slots__ = ("_bytes_max", "_keys_max", "_mailboxes", "_success")

    def __init__(self, mailboxes: Mailboxes) -> None:
        self.durable = False
        self.problem = ""
        self.closes = False
        self.packet_id = 0
        self._mailboxes: Mailboxes = mailboxes
        self.use(mailboxes.config)

    def use(self, config: EcqConfig) -> None:
        self._keys_max: int = config.max_keys_per_queue
        self._bytes_max: int = config.max_bytes_per_queue
        self._mailboxes.writes.forget_all_sizes()
        self._success: int = reasons.NO_MATCHING_SUBSCRIBERS if config.puback_no_match else 0

    def publish(self, message: Message, session: Session | None) -> int:
        self.durable = False
        self.closes = False
        topic = message.topic
        if not topic.startswith(WRITE):
            return self._publish_elsewhere(message, session)
        address = WriteTopic(topic)
        if address.problem:
            return self._refuse("topic", reasons.TOPIC_NAME_INVALID, address.problem)
        mailboxes = self._mailboxes
        write = Write(address.owner, record_of(message, address.key), session, self.packet_id)
        if self._keys_max or self._bytes_max:
            problem = mailboxes.writes.over_limit(write, self._keys_max, self._bytes_max)
            if problem:
                # 3.1.1 cannot say no: without PUBACK the client knows that it is not written.
                self.closes = session is not None and session.version != V5 and message.qos > 0
                return self._refuse("quota", reasons.QUOTA_EXCEEDED, problem)
        mailboxes.collect(write)
        mailboxes.runner.group.bytes += len(message.body)
        self.durable = True
        if session is None:  # a will: nobody would send it again
            mailboxes.runner.if_failed(lambda: self._publish_again(message))
        return self._success

    def _publish_again(self, message: Message) -> None:
        self.publish(message, None)

    def _publish_elsewhere(self, message: Message, session: Session | None) -> int:
        topic = message.topic
        owner = rewound_owner(topic)
        if not owner:
            if topic == LEVEL + b"/w":
                problem = "names no owner and no key; write $ECQ/w/{owner}/{key}"
                return self._refuse("topic", reasons.TOPIC_NAME_INVALID, problem)
            self.refused(topic)
            problem = "nobody publishes to a mailbox itself; write to $ECQ/w/{owner}/{key}"
            return self._refuse("direct", reasons.NOT_AUTHORIZED, problem)
        if not _may_rewind(message, session, owner):
            return self._refuse("rewind", reasons.NOT_AUTHORIZED, "only its owner, or an admin")
        mailboxes = self._mailboxes
        last = mailboxes.writes.last_seq(owner)
        try:
            acked = target(mailboxes.store, owner, message.payload(), last)
        except BadRewindError as error:
            return self._refuse("rewind", reasons.PAYLOAD_FORMAT_INVALID, str(error))
        if mailboxes.writes.exists(owner):
            mailboxes.rewind_to(owner, acked)
            self.durable = True
        return 0

    def refused(self, topic: bytes) -> None:
        if not topic.startswith(WRITE) and not topic.endswith(REWIND):
            self._mailboxes.counters.direct_publish_rejected += 1

    def _refuse(self, why: str, reason: int, problem: str) -> int:
        self._mailboxes.counters.refuse(why)
        self.problem = problem
        return reason


def _may_rewind(message: Message, session: Session | None, owner: bytes) -> bool:
    if session is None:  # a will: nobody knows any more whether its client was an admin
        return message.publisher.encode() == owner
    if session.name == owner:
        return True
    connection = session.connection
    return connection is not None and connection.acl is not None and connection.acl.platform
