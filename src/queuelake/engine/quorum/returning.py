"""How messages come back: who is to blame, whether that was once too often, and when it goes out.

| cause                                                 | counts | may be delayed by |
|-------------------------------------------------------|--------|-------------------|
| neutral: removed, node away, held too long            | no     | -                 |
| returned: return, modify                              | no     | `returned`, `all` |
| failed: modify with `delivery_failed`, session died   | yes    | `failed`, `all`   |
"""

from __future__ import annotations

from typing import Final

from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.policy import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, QuorumPolicy
from queuelake.engine.quorum.sessions import Consumer
from queuelake.engine.quorum.state import DELIVERY_LIMIT, QuorumState

NEUTRAL: Final = 0
RETURNED: Final = 1
FAILED: Final = 2


def give_back(
    state: QuorumState, message: Message, cause: int, due_ms: int = 0, token: str = ""
) -> None:
    """A message which is in no place; `due_ms` and `token` are the consumer's own wish."""
    policy = state.policy
    if cause == FAILED:
        message.failures += 1
        if 0 <= policy.delivery_limit < message.failures:
            state.bury(message, DELIVERY_LIMIT)
            return
    if due_ms <= state.now_ms and not token:
        due_ms = state.now_ms + _retry_delay_ms(policy, message, cause)
    if due_ms > state.now_ms:
        state.delay(message, due_ms, token)
    elif token:
        state.delay(message, 0, token)
    else:
        state.take_back(message)


def give_back_all(state: QuorumState, consumer: Consumer, cause: int) -> None:
    for msg_id in list(consumer.held):
        message = state.let_go(consumer, msg_id)
        assert message is not None
        give_back(state, message, cause)
    consumer.refill()


def _retry_delay_ms(policy: QuorumPolicy, message: Message, cause: int) -> int:
    kind = policy.delayed_retry
    if (cause == RETURNED and kind in (RETRY_ALL, RETRY_RETURNED)) or (
        cause == FAILED and kind in (RETRY_ALL, RETRY_FAILED)
    ):
        delay_ms = policy.delayed_retry_min_ms * max(1, message.failures)
        return min(delay_ms, policy.delayed_retry_max_ms)
    return 0
