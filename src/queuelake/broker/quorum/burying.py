"""Dead letters of a quorum queue: a copy in the dead-letter queue, in the commit which removes it.

So both strategies lose nothing and copy nothing twice, as long as the target takes the copy. When
it does not, `at_most_once` has lost the message, and `at_least_once` keeps it and tries again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from queuelake.broker.queues.deadletters import dead_record, put_letter
from queuelake.broker.quorum.rows import PARTITION, seq_of
from queuelake.engine import effects
from queuelake.engine.message import Entry
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum.effects import DeadLetterDeliver, Delivery
from queuelake.errors import RefusedError

if TYPE_CHECKING:
    from queuelake.broker.quorum.host import QuorumHost

log = logging.getLogger("queuelake.queues")

RETRY_MS: Final = 5_000
CHAIN_MAX: Final = 8  # queues which are dead-letter queues of each other must come to an end
REASON: Final = "reason"  # the note which has the consumer's words


def bury(host: QuorumHost, delivery: Delivery, reason: str, now_ms: int) -> bool:
    """False: there is no copy."""
    seq = seq_of(delivery.index)
    record = host.record(seq)
    service = host.queues.quorum
    if record is None or service.chain >= CHAIN_MAX:
        log.error("%s: dead letter %d (%s) is lost", host.name, seq, reason)
        return False
    words = (delivery.annotations or {}).get(REASON, "")
    entry = Entry(PARTITION, delivery.size, 0, record.ts_ms, 0, seq=seq)
    story = effects.DeadLetter("", entry, reason, delivery.acquired, 0, words)
    message_id = host.message_id(record)
    # `publishing` takes no story from a producer.
    copy = dead_record(record, story, host.topic, message_id, now_ms, is_story_ours=True)
    service.chain += 1
    try:
        return put_letter(host.queues, host.machine.policy.dead_letter_target, copy, now_ms)
    except RefusedError as error:
        log.error("%s: dead letter %d (%s): %s", host.name, seq, reason, error)
        return False
    finally:
        service.chain -= 1


def bury_surely(host: QuorumHost, effect: DeadLetterDeliver, now_ms: int) -> None:
    """What was refused stays in the backlog, in the hands of its worker, until the next one."""
    done: list[int] = []
    for delivery, reason in zip(effect.deliveries, effect.reasons, strict=True):
        if bury(host, delivery, reason, now_ms):
            done.append(delivery.msg_id)
        elif not host.letters_due_ms:
            host.letters_due_ms = now_ms + RETRY_MS
    if done:
        host.apply(c.DeadLetterSettle(effect.pid, done), now_ms)
