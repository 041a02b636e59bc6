"""What producers and consumers of one queue saw, and what must be true of it at the end.

A message is its key and its number under that key; numbers count up from 0 in the order of
publishing. Clients only append to a `History`; `mistakes()` reads it when everything has ended:

- every accepted message was acked or is in the dead-letter queue, and never both;
- a message is stored once, however often its producer repeated it: one place, the place of its key;
- deliveries are counted up, and the first ones of a key come in the order of publishing;
- what its holder settled in time was taken (code 0), and does not come back;
- where the queue works serially, a key never goes back to an earlier message.

A delivery may lie unread in a socket while the broker is killed and another consumer gets the same
message. So deliveries are put in order by the life of the broker they came from; inside one life
the order of reading counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Verb = Literal["ack", "nack", "reject"]
Message = tuple[str, int]
SHOWN_MAX = 5


@dataclass(frozen=True)
class Delivery:
    """One message at one consumer; `place` is its partition and offset."""

    message: Message
    place: tuple[int, int]
    count: int
    life: int
    consumer: str

    def is_after(self, other: Delivery) -> bool:
        """Whether the broker sent this one later than another delivery of the same message."""
        return (self.life, self.count) > (other.life, other.count)

    def __str__(self) -> str:
        key, number = self.message
        return f"{key}:{number} (delivery {self.count}, life {self.life}, {self.consumer})"


@dataclass
class Settlement:
    """What a consumer sent about a delivery.

    `code` is the answer, None when the connection was lost before it. `in_time` says that the
    answer came while the consumer held the message for certain: on the connection of the delivery,
    well before the delivery timeout.
    """

    delivery: Delivery
    verb: Verb
    code: int | None = None
    in_time: bool = False

    @property
    def is_certain(self) -> bool:
        return self.in_time and self.code == 0


@dataclass
class History:
    """Everything that was seen of one queue."""

    accepted: list[Message] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    dead: list[Message] = field(default_factory=list)

    def finished(self) -> set[Message]:
        """Messages which ended as they should: an ack was sent, or they are dead letters."""
        acked = {one.delivery.message for one in self.settlements if one.verb == "ack"}
        return acked | set(self.dead)


def mistakes(history: History, *, serial: bool = False, by_key: bool = True) -> list[str]:
    """What the broker did wrong, in words; empty when it kept every promise.

    `by_key`: whether the queue promises an order for each key.
    """
    by_life = sorted(history.deliveries, key=lambda delivery: delivery.life)
    found = [*_lost(history), *_foreign(history), *_settled_twice(history), *_refused(history)]
    found += [*_stored_wrongly(by_life), *_counted_wrongly(by_life)]
    if by_key:
        found += _first_out_of_order(by_life)
    found += _delivered_after_the_end(history, by_life)
    if serial:
        found += _not_serial(by_life)
    return found


def _lost(history: History) -> Iterator[str]:
    missing = sorted(set(history.accepted) - history.finished())
    if missing:
        delivered = {delivery.message for delivery in history.deliveries}
        never = [message for message in missing if message not in delivered]
        yield (
            f"{len(missing)} of {len(history.accepted)} accepted messages neither acked nor dead, "
            f"{len(never)} of them never delivered: {_shown(missing)}"
        )


def _foreign(history: History) -> Iterator[str]:
    seen = {delivery.message for delivery in history.deliveries} | set(history.dead)
    foreign = sorted(seen - set(history.accepted))
    if foreign:
        yield f"{len(foreign)} messages which were never accepted: {_shown(foreign)}"


def _settled_twice(history: History) -> Iterator[str]:
    dead = set(history.dead)
    for one in history.settlements:
        if one.verb == "ack" and one.is_certain and one.delivery.message in dead:
            yield f"acked and dead-lettered: {one.delivery}"
        if one.verb == "reject" and one.is_certain and one.delivery.message not in dead:
            yield f"rejected, and not in the dead-letter queue: {one.delivery}"


def _refused(history: History) -> Iterator[str]:
    for one in history.settlements:
        if one.in_time and one.code:
            yield f"{one.verb} of the holder refused with {one.code:#04x}: {one.delivery}"


def _stored_wrongly(deliveries: list[Delivery]) -> Iterator[str]:
    places: dict[Message, tuple[int, int]] = {}
    partitions: dict[str, int] = {}
    for delivery in deliveries:
        place = places.setdefault(delivery.message, delivery.place)
        if place != delivery.place:
            yield f"stored twice, at {place} and {delivery.place}: {delivery}"
        partition = partitions.setdefault(delivery.message[0], delivery.place[0])
        if partition != delivery.place[0]:
            yield f"key in partitions {partition} and {delivery.place[0]}: {delivery}"


def _counted_wrongly(deliveries: list[Delivery]) -> Iterator[str]:
    counts: dict[Message, int] = {}
    for delivery in deliveries:
        before = counts.get(delivery.message, 0)
        if delivery.count <= before:
            yield f"delivery count {delivery.count} after {before}: {delivery}"
        counts[delivery.message] = delivery.count


def _first_out_of_order(deliveries: list[Delivery]) -> Iterator[str]:
    newest: dict[str, int] = {}
    seen: set[Message] = set()
    for delivery in deliveries:
        key, number = delivery.message
        # The first delivery may have died with its connection: only a count of 1 is the first.
        if delivery.count == 1 and delivery.message not in seen:
            if number < newest.get(key, -1):
                yield f"first delivered after number {newest[key]} of its key: {delivery}"
            newest[key] = max(number, newest.get(key, -1))
        seen.add(delivery.message)


def _delivered_after_the_end(history: History, deliveries: list[Delivery]) -> Iterator[str]:
    ends: dict[Message, Settlement] = {}
    for one in history.settlements:
        if one.verb != "nack" and one.is_certain:
            ends.setdefault(one.delivery.message, one)
    for delivery in deliveries:
        end = ends.get(delivery.message)
        if end is not None and delivery.is_after(end.delivery):
            yield f"delivered after the {end.verb} of {end.delivery} was confirmed: {delivery}"


def _not_serial(deliveries: list[Delivery]) -> Iterator[str]:
    by_key: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        by_key.setdefault(delivery.message[0], []).append(delivery)
    for of_key in by_key.values():
        for before, after in pairwise(of_key):
            if after.message[1] < before.message[1]:
                yield f"{before} was out before the end of {after}"


def _shown(messages: list[Message]) -> str:
    names = [f"{key}:{number}" for key, number in messages[:SHOWN_MAX]]
    return ", ".join(names) + (", ..." if len(messages) > SHOWN_MAX else "")
