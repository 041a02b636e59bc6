"""Which consumer gets a message of a message queue.

Only those with room are asked. `random` is uniform. `round_robin` asks whoever was served longest
ago, so one who is passed over keeps its turn. `least_inflight` asks whoever holds least, by name
among equals. `sticky_key` gives each key a home, which changes for few keys when one comes or goes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from queuelake.engine.groups import Consumer
from queuelake.engine.policy.settings import LEAST_INFLIGHT, RANDOM, ROUND_ROBIN

_MODULUS: Final = 0x7FFFFFFF
_FACTOR: Final = 48271
_MIX: Final = 0x45D9F3B


def throw(dice: int) -> int:
    """The state of the generator after `dice`: 1 to 2**31 - 2, each once in a cycle."""
    state: i64 = dice
    return int(state * _FACTOR % _MODULUS)


def seed(dice: int, moment: int) -> int:
    """Another place in the cycle."""
    return throw((dice ^ moment) % (_MODULUS - 1) + 1)


def home_of(key: int, order: list[Consumer], without: str) -> int:
    """The number of the consumer whom the key belongs to, but for one; -1: there is nobody."""
    folded: i64 = (key ^ key >> 31 ^ key >> 62) & _MODULUS
    home = -1
    highest: i64 = -1
    for number, consumer in enumerate(order):
        if consumer.name == without:
            continue
        weight: i64 = (folded ^ consumer.hash) & _MODULUS
        weight = (weight ^ weight >> 16) * _MIX & _MODULUS
        weight = (weight ^ weight >> 15) * _MIX & _MODULUS
        weight ^= weight >> 16
        if weight > highest:
            highest = weight
            home = number
    return home


@final
class Chooser:
    """Who gets the messages of one dispatch; counts what each of them holds."""

    __slots__ = ("_strategy", "dice", "free", "turn")

    def __init__(self, strategy: int, order: list[Consumer], dice: int, turn: int) -> None:
        self._strategy: int = strategy
        self.dice: int = dice
        self.turn: int = turn
        self.free: list[Consumer] = [one for one in order if one.held < one.prefetch]
        # Equals stay in the order of their names.
        if strategy == ROUND_ROBIN:
            self.free.sort(key=_turn_of)
        elif strategy == LEAST_INFLIGHT:
            self.free.sort(key=_held_of)

    def take(self, without: str) -> Consumer | None:
        """The consumer of the next message, but for one; None: no other has room."""
        free = self.free
        count = len(free)
        at = 0
        skipped = -1
        if without:
            for number, one in enumerate(free):
                if one.name == without:
                    skipped = number
                    count -= 1
                    break
        if count == 0:
            return None
        if self._strategy == RANDOM and count > 1:
            self.dice = throw(self.dice)
            at = self.dice * count >> 31
        if 0 <= skipped <= at:
            at += 1
        consumer = free[at]
        consumer.held += 1
        if self._strategy == ROUND_ROBIN:
            self.turn += 1
            consumer.turn = self.turn
        if consumer.held >= consumer.prefetch:
            del free[at]
        elif self._strategy != RANDOM and count > 1:
            self._move(at, consumer)
        return consumer

    def _move(self, at: int, consumer: Consumer) -> None:
        """To its new place in the line."""
        free = self.free
        del free[at]
        if self._strategy == ROUND_ROBIN:
            free.append(consumer)
            return
        low, high = at, len(free)
        while low < high:
            middle = (low + high) // 2
            other = free[middle]
            if other.held < consumer.held or (
                other.held == consumer.held and other.name < consumer.name
            ):
                low = middle + 1
            else:
                high = middle
        free.insert(low, consumer)


def _turn_of(consumer: Consumer) -> int:
    return consumer.turn


def _held_of(consumer: Consumer) -> int:
    return consumer.held
