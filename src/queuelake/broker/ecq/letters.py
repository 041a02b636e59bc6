"""Dead letters of mailboxes: what an owner refused, in `$queue/dlq/ecq/{owner}`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from queuelake import names
from queuelake.broker.ecq.topics import address
from queuelake.broker.queues.deadletters import dead_record
from queuelake.engine.commands import ACCEPTED
from queuelake.engine.effects import DeadLetter
from queuelake.engine.message import Entry
from queuelake.errors import RefusedError
from queuelake.storage.chunk import Record
from queuelake.storage.ecq_tables import digest

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues
    from queuelake.engine.kinds.ecq import Bury

log = logging.getLogger("queuelake.ecq")

FOLDER: Final = "ecq/"


def letters_name(owner: bytes) -> str:
    """The queue for what an owner refused; an id which cannot be a level is spelt differently."""
    level = owner.decode().replace("%", "%25")
    if level.startswith("$"):
        level = "%24" + level[1:]
    name = names.dead_letter_name(FOLDER + level)
    if names.name_mistake(name.encode()):
        return names.dead_letter_name(FOLDER + "%" + digest(owner).hex())
    return name


def bury(queues: Queues, owner: bytes, record: Record, effect: Bury, now_ms: int) -> bool:
    """Copy an entry to the dead letters, in this commit. False: they cannot be had, and the entry
    stays where it is, behind the position of its owner."""
    name = letters_name(owner)
    try:
        queue = queues.find(name) or queues.create(name, {}, True)
    except RefusedError as error:
        log.error("mailbox of %r: entry %d is no dead letter: %s", owner, effect.seq, error)
        return False
    topic = address(owner)
    record.topic = topic + b"/" + record.key
    entry = Entry(0, 0, 0, record.ts_ms, 0, seq=record.seq)
    words = f"refused with reason 0x{effect.reason:02X}"
    letter = DeadLetter("", entry, "rejected", effect.attempts, effect.first_ms, words)
    message_id = topic + b":%d" % record.seq
    copy = dead_record(record, letter, topic, message_id, now_ms)
    queue.enqueue(copy, queues.partition_for(queue, copy.key), b"", ACCEPTED, now_ms)
    return True
