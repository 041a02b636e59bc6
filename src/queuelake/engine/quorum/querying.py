"""What may be asked of a quorum queue without its log: nothing here changes anything."""

from __future__ import annotations

from queuelake.engine.quorum.effects import Delivery
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.state import QuorumState


def peek(state: QuorumState, position: int) -> Message | None:
    """The message which is so far from being handed out, from 1 on."""
    return state.lines.at(position - 1) if 0 < position <= state.lines.count else None


def held_between(state: QuorumState, key: int, first: int, last: int) -> list[Delivery]:
    """What a consumer holds of a range of its deliveries, to fill a gap; both ends count.

    What is missing in the answer was taken back meanwhile, and will come under another number.
    """
    consumer = state.consumers.get(key)
    if consumer is None:
        return []
    held = consumer.held
    return [held[msg_id].delivery(msg_id) for msg_id in range(first, last + 1) if msg_id in held]


def live_indexes(state: QuorumState) -> list[int]:
    """Where the log has payloads which are needed, in order."""
    found = [message.index for message in state.lines.in_order()]
    found += state.delayed
    for consumer in state.consumers.values():
        found += [message.index for message in consumer.held.values()]
    found += [letter.message.index for letter in state.letters]
    found += [letter.message.index for letter in state.letters_held.values()]
    for enqueuer in state.enqueuers.values():
        for parked in enqueuer.numbers.parked.values():
            assert isinstance(parked, Message)
            found.append(parked.index)
    found.sort()
    return found
