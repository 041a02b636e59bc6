"""What simulated queues have promised: of each message, and of each group which must get it.

Everything is noted when the broker writes it to a connection, read or not: a confirmation counts
from then on, and a delivery is in the hands of its consumer until the broker has a reason to think
otherwise. What cannot be known from outside (a settlement whose confirmation never came, a message
repeated without an id) makes a check weaker, never stronger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from queuelake.broker.queues.host import HostedQueue
from queuelake.config_types import parse_duration
from queuelake.queue_settings import QueueSettings
from tests.harness import packets as p
from tests.harness.packets import Packet

HEARTBEAT_MS = 4_000
CLOCK_SLOT_MS = 250  # the broker's idea of when it heard something


@dataclass
class Posted:
    """A message of a producer."""

    number: int
    queue: str
    topic: str
    qos: int
    key: str = ""
    message_id: str = ""
    delay_ms: int = 0
    expiry_s: int = 0
    priority: str = ""
    first_ms: int = 0
    times: int = 0
    outcome: str = ""
    doubled: bool = False  # it may be stored more than once, and that is the producer's doing
    excused: bool = False  # a purge may have taken it
    places: set[tuple[int, int]] = field(default_factory=set)

    def properties(self) -> p.Properties:
        pairs = [
            ("partition-key", self.key),
            ("message-id", self.message_id),
            ("delay-ms", str(self.delay_ms) if self.delay_ms else ""),
            ("priority", self.priority),
        ]
        expiry = {"message_expiry_interval": self.expiry_s} if self.expiry_s else {}
        return {**expiry, "user_property": [pair for pair in pairs if pair[1]]}


@dataclass(frozen=True)
class Taken:
    """A delivery as its consumer sees it; 3.1.1 shows no place."""

    number: int
    queue: str
    group: str
    message_id: str
    partition: int
    offset: int
    count: int


@dataclass
class Hold:
    """A delivery in the hands of a consumer, until the broker may take it back."""

    worker: str
    deadline_ms: int
    epoch: int


@dataclass
class Fate:
    """What became of a message in one group."""

    deliveries: int = 0
    count: int = 0
    holds: dict[str, Hold] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)  # ends which a consumer asked for
    settled: str = ""  # the end which was confirmed
    is_acked: bool = False  # by one who had it; an ack of what is over is confirmed too
    offset: int = 0


@dataclass
class DeadLetter:
    number: int
    queue: str
    group: str
    reason: str
    count: int


class Ledger:
    def __init__(self, settings: dict[str, QueueSettings], groups: list[str]) -> None:
        self.settings = settings
        self.groups = groups
        self.now_ms: Callable[[], int] = lambda: 0
        self.host: Callable[[str], HostedQueue | None] = lambda name: None
        self.messages: dict[int, Posted] = {}
        self.fates: dict[tuple[str, int], Fate] = {}
        self.dead: list[DeadLetter] = []
        self.wrong: list[str] = []
        self.epoch = 0  # changes when deliveries may come again: a crash, a failed commit
        self.seen_ms: dict[str, int] = {}  # when the broker last heard of a worker
        self._asked: dict[tuple[str, str], list[object]] = {}  # settings which may be in force
        self._given_up: dict[str, dict[int, int]] = {name: {} for name in settings}
        self._first: dict[tuple[str, str, int, str], int] = {}

    def fate(self, group: str, number: int) -> Fate:
        return self.fates.setdefault((group, number), Fate())

    def new_epoch(self) -> None:
        self.epoch += 1

    # Producers

    def posting(self, message: Posted) -> None:
        """A message is sent, again perhaps."""
        now_ms = self.now_ms()
        message.times += 1
        if message.times == 1:
            message.first_ms = now_ms
        elif message.qos == 1:
            window_ms = parse_duration(self.settings[message.queue].dedupe_window)
            if not message.message_id or now_ms >= message.first_ms + window_ms:
                message.doubled = True

    def answered(self, message: Posted, reason: int) -> None:
        if reason < 0x80:
            message.outcome = "confirmed"
        elif not message.outcome and reason != 0x80:
            message.outcome = "refused"
            depth = self.settings[message.queue].limits.max_queue_depth
            if reason != 0x97 or depth > 1000:
                self.wrong.append(f"{message} was refused with 0x{reason:02X}")

    # Deliveries

    def taken_of(self, packet: Packet, group: str) -> Taken:
        told = dict(packet.user_properties)
        return Taken(
            int(packet.payload),
            packet.topic.removeprefix("$queue/"),
            group,
            told.get("message-id", ""),
            int(told.get("partition", "-1")),
            int(told.get("offset", "0")),
            int(told.get("delivery-count", "0")),
        )

    def delivered(self, worker: str, packet: Packet, group: str) -> None:
        """The broker has written a delivery."""
        taken = self.taken_of(packet, group)
        message = self.messages[taken.number]
        fate = self.fate(group, taken.number)
        self._check_delivery(worker, taken, message, fate)
        fate.deliveries += 1
        if taken.offset:
            message.places.add((taken.partition, taken.offset))
            fate.offset = taken.offset
            fate.count = max(fate.count, taken.count)
            deadline_ms = self._deadline_ms(worker, taken)
            fate.holds[worker] = Hold(worker, deadline_ms, self.epoch)

    def _deadline_ms(self, worker: str, taken: Taken) -> int:
        """When the queue takes it back; nobody else knows when it was handed out."""
        host = self.host(taken.queue)
        assert host is not None
        group = host.machine.groups[taken.group]
        held = group.lanes[taken.partition].held.get(taken.offset)
        if held is None or held.consumer.name != worker:
            self.wrong.append(f"{worker} gets {taken}, which the queue does not think it has")
            return 0
        return held.deadline_ms

    def _check_delivery(self, worker: str, taken: Taken, message: Posted, fate: Fate) -> None:
        now_ms = self.now_ms()
        wrong: list[str] = []
        if message.queue != taken.queue:
            wrong.append(f"it was published to {message.queue}")
        if message.outcome == "refused" and message.times == 1:
            wrong.append("it was refused")
        if now_ms < message.first_ms + message.delay_ms:
            wrong.append("it is delayed")
        if not message.doubled:
            if fate.settled:
                wrong.append(f"its {fate.settled} was confirmed")
            for hold in fate.holds.values():
                if self._is_held(hold):
                    wrong.append(f"{hold.worker} has it in hand")
            if taken.offset and taken.count <= fate.count:
                wrong.append(f"its delivery-count was {fate.count}")
        if taken.offset:
            wrong += self._out_of_order(taken, message, fate)
        self.wrong += [f"{worker} gets {taken}, but {one}" for one in wrong]

    def _is_held(self, hold: Hold) -> bool:
        now_ms = self.now_ms()
        silent_ms = now_ms - self.seen_ms.get(hold.worker, 0)
        return hold.epoch == self.epoch and now_ms < hold.deadline_ms and silent_ms < HEARTBEAT_MS

    def _out_of_order(self, taken: Taken, message: Posted, fate: Fate) -> list[str]:
        settings = self.settings[taken.queue]
        if not message.key or settings.ordering == "none" or message.doubled:
            return []
        wrong = []
        line = (taken.group, taken.queue, taken.partition, message.key)
        if taken.count == 1 and not fate.deliveries:
            if taken.offset < self._first.get(line, 0):
                wrong.append(f"offset {self._first[line]} of its key came before")
            self._first[line] = taken.offset
        if settings.key_inflight == 1 and settings.retry_blocks != "none":
            wrong += self._not_serial(taken, message)
        return wrong

    def _not_serial(self, taken: Taken, message: Posted) -> list[str]:
        """Whatever of this key came before is over."""
        wrong = []
        for other in self.messages.values():
            if other.queue != message.queue or other.key != message.key or other is message:
                continue
            fate = self.fates.get((taken.group, other.number))
            if fate is None or not fate.deliveries or other.doubled:
                continue
            if (taken.partition, fate.offset) not in other.places:
                continue
            if self._may_be_over(fate, taken):
                continue
            if fate.offset < taken.offset:
                wrong.append(f"{other.number} of its key is not settled")
        return wrong

    def _may_be_over(self, fate: Fate, taken: Taken) -> bool:
        """Whether a message is settled, or was given up: at the end it is asked why."""
        host = self.host(taken.queue)
        assert host is not None
        lane = host.machine.groups[taken.group].lanes[taken.partition]
        return bool(fate.tried) or fate.offset in lane.settled or fate.offset in lane.dying

    def is_expired(self, message: Posted) -> bool:
        ttl_ms = parse_duration(self.settings[message.queue].limits.message_ttl)
        lives_ms = min(ttl_ms or 1 << 60, message.expiry_s * 1000 or 1 << 60)
        return self.now_ms() >= message.first_ms + lives_ms

    def has_expired(self, queue: str) -> bool:
        return any(self.is_expired(one) for one in self.messages.values() if one.queue == queue)

    # Settlements

    def settling(self, worker: str, taken: Taken, kind: str) -> bool:
        """A consumer settles; whether the broker must know that it may."""
        fate = self.fate(taken.group, taken.number)
        hold = fate.holds.pop(worker, None)
        is_last = taken.count == fate.count
        surely = hold is not None and is_last and self._is_held(hold) and hold.epoch == self.epoch
        if kind != "nack":
            fate.tried.add(kind)
        return surely and not self.messages[taken.number].doubled

    def settled(self, kind: str, taken: Taken, surely: bool, reason: int) -> None:
        """The broker has answered."""
        fate = self.fate(taken.group, taken.number)
        if reason == 0 and kind != "nack":
            if fate.settled and fate.settled != kind and not self.messages[taken.number].doubled:
                if kind == "reject":
                    self.wrong.append(f"{taken}: {kind} was confirmed after {fate.settled}")
            fate.settled = fate.settled or kind
            fate.is_acked = fate.is_acked or (surely and kind == "ack")
        elif reason not in (0, 0x10, 0x80, 0x87):
            self.wrong.append(f"{kind} of {taken} was answered 0x{reason:02X}")
        elif reason in (0x10, 0x87) and surely:
            self.wrong.append(f"{kind} of {taken}, which it holds, was answered 0x{reason:02X}")

    def heard(self, worker: str) -> None:
        """A worker gives a sign of life; after a long silence its hands are empty."""
        now_ms = self.now_ms()
        if now_ms - self.seen_ms.get(worker, now_ms) >= HEARTBEAT_MS:
            self.left(worker)
        self.seen_ms[worker] = now_ms - CLOCK_SLOT_MS

    def left(self, worker: str) -> None:
        """The broker knows that the connection is over: nothing is in these hands."""
        for fate in self.fates.values():
            fate.holds.pop(worker, None)

    def purged(self, queue: str) -> None:
        for message in self.messages.values():
            if message.queue == queue:
                message.excused = True

    def gave_up(self, queue: str, machine: int, count: int) -> None:
        """How many messages one machine of a queue has given up so far."""
        known = self._given_up[queue]
        known[machine] = max(known.get(machine, 0), count)

    # Settings

    def configuring(self, queue: str, changes: dict[str, object]) -> None:
        """Settings are sent: from now on they may be in force."""
        for key, value in changes.items():
            before = getattr(self.settings[queue], key)
            self._asked.setdefault((queue, key), [before]).append(value)

    def configured(self, queue: str, changes: dict[str, object]) -> None:
        """They were confirmed: what was before them is not."""
        for key, value in changes.items():
            asked = self._asked[(queue, key)]
            del asked[: asked.index(value)]

    def setting_problems(self, queue: str, found: QueueSettings) -> list[str]:
        return [
            f"{queue}: {key} is {getattr(found, key)!r}, asked for was {values}"
            for (name, key), values in self._asked.items()
            if name == queue and getattr(found, key) not in values
        ]

    # The end

    def problems(self) -> list[str]:
        wrong: list[str] = []
        for message in self.messages.values():
            if len(message.places) > 1 and not message.doubled:
                wrong.append(f"{message} is stored more than once")
        for group in self.groups:
            for name in self.settings:
                wrong += self._losses(group, name)
        return wrong + self._dead_problems()

    def _losses(self, group: str, queue: str) -> list[str]:
        settings = self.settings[queue]
        dead = {one.number for one in self.dead if one.queue == queue and one.group == group}
        of_it = [one for one in self.messages.values() if one.queue == queue]
        lost = []
        for message in of_it:
            fate = self.fate(group, message.number)
            is_over = fate.settled or message.number in dead or message.excused
            if message.outcome != "confirmed" or is_over or self.is_expired(message):
                continue
            if "ack" in fate.tried or (fate.tried and not settings.dlq_config.enabled):
                continue
            lost.append(f"{group} has lost {message}: {fate}")
        may_be_lost = 0
        if settings.overflow == "drop_head":
            copies = sum(max(1, one.times) for one in of_it)
            may_be_lost += max(0, copies - settings.limits.max_queue_depth)
        if not settings.dlq_config.enabled:
            may_be_lost += sum(self._given_up[queue].values())
        return lost if len(lost) > may_be_lost else []

    def _dead_problems(self) -> list[str]:
        wrong: list[str] = []
        seen: set[tuple[str, int]] = set()
        for one in self.dead:
            message = self.messages[one.number]
            fate = self.fate(one.group, one.number)
            settings = self.settings[one.queue]
            if (one.group, one.number) in seen and not message.doubled:
                wrong.append(f"{one} is there twice")
            seen.add((one.group, one.number))
            right = {
                "rejected": "reject" in fate.tried,
                "max_retries": one.count > settings.retry_policy.max_retries,
                "expired": settings.expire_to_dlq and self.is_expired(message),
            }
            if not right.get(one.reason, False):
                wrong.append(f"{one} has no such reason: {fate}")
            if fate.is_acked and not message.doubled:
                wrong.append(f"{one} was acknowledged before: {fate}")
            if not settings.dlq_config.enabled:
                wrong.append(f"{one}, but there shall be no dead letters")
        for (group, number), fate in self.fates.items():
            message = self.messages[number]
            kept = self.settings[message.queue].dlq_config.enabled
            if fate.settled == "reject" and kept and (group, number) not in seen:
                wrong.append(f"{group} has rejected {message}, and it is no dead letter")
        return wrong
