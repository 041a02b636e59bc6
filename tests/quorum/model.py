"""What a quorum queue must do, told in the simplest way: lists, searched from end to end."""

from __future__ import annotations

from dataclasses import dataclass, field

READY, HELD, DELAYED, DEAD, DONE = "ready", "held", "delayed", "dead", "done"


@dataclass
class Fate:
    """Of one message."""

    index: int
    pid: str
    seq: int
    size: int
    priority: int
    expires_ms: int | None
    place: str = READY
    turn: tuple[int, int] = (0, 0)  # returned ones first, then as they came
    key: int = 0
    msg_id: int = 0
    failures: int = 0
    acquired: int = 0
    due_ms: int = 0
    reason: str = ""


@dataclass
class Taker:
    """A consumer."""

    key: int
    prefetch: int
    next_id: int = 0
    cancelled: bool = False
    suspected: bool = False


@dataclass
class Model:
    """One queue with consumers of one priority; who of them gets a message is not told."""

    delivery_limit: int
    length_max: int
    retry_ms: int
    now_ms: int = 0
    fates: list[Fate] = field(default_factory=list)
    takers: dict[int, Taker] = field(default_factory=dict)
    next_seq: dict[str, int] = field(default_factory=dict)
    parked: dict[tuple[str, int], Fate] = field(default_factory=dict)
    turns: int = 0

    def at(self, place: str) -> list[Fate]:
        return [one for one in self.fates if one.place == place]

    def held_by(self, key: int) -> list[Fate]:
        return [one for one in self.at(HELD) if one.key == key]

    def in_line(self) -> list[Fate]:
        """In order of hand-out."""
        return sorted(self.at(READY), key=lambda one: one.turn)

    def enqueue(self, fate: Fate) -> None:
        expected = self.next_seq.setdefault(fate.pid, 1)
        if fate.seq < expected or (fate.pid, fate.seq) in self.parked:
            return
        self.parked[(fate.pid, fate.seq)] = fate
        while (found := self.parked.pop((fate.pid, self.next_seq[fate.pid]), None)) is not None:
            self._store(found)
            self.next_seq[fate.pid] += 1

    def _store(self, fate: Fate) -> None:
        self.turns += 1
        fate.turn = (32 - fate.priority, self.turns)
        self.fates.append(fate)

    def end_of_enqueuer(self, pid: str) -> None:
        for name in sorted(one for one in self.parked if one[0] == pid):
            self._store(self.parked.pop(name))
        self.next_seq.pop(pid, None)

    def come_back(self, fate: Fate, failed: bool, wanted: bool) -> None:
        """`wanted`: by an answer of the consumer, not because it went."""
        fate.failures += failed
        if failed and 0 <= self.delivery_limit < fate.failures:
            self.bury(fate, "delivery_limit")
        elif self.retry_ms and (wanted or failed):
            fate.place = DELAYED
            fate.due_ms = self.now_ms + self.retry_ms * max(1, fate.failures)
        else:
            self.ready_again(fate)

    def ready_again(self, fate: Fate) -> None:
        self.turns += 1
        fate.place, fate.turn = READY, (0, self.turns)

    def bury(self, fate: Fate, reason: str) -> None:
        fate.place, fate.reason = DEAD, reason

    def give(self, key: int, msg_id: int, index: int) -> Fate:
        """The queue handed this out: it must have been its turn."""
        self.expire_heads()
        fate = self.in_line()[0]
        assert fate.index == index, f"{index} before {fate.index}"
        taker = self.takers[key]
        assert not taker.cancelled
        assert not taker.suspected
        assert msg_id == taker.next_id
        assert len(self.held_by(key)) < taker.prefetch
        taker.next_id += 1
        fate.place, fate.key, fate.msg_id = HELD, key, msg_id
        fate.acquired += 1
        return fate

    def expire_heads(self) -> None:
        """Only what would be handed out next is looked at."""
        while (line := self.in_line()) and self.is_expired(line[0]):
            self.bury(line[0], "expired")

    def is_expired(self, fate: Fate) -> bool:
        return fate.expires_ms is not None and fate.expires_ms <= self.now_ms

    def can_give(self) -> bool:
        """Whether somebody has room."""
        return any(
            not one.cancelled and not one.suspected and len(self.held_by(key)) < one.prefetch
            for key, one in self.takers.items()
        )

    def keep_length(self) -> None:
        while self.length_max and len(self.at(READY)) + len(self.at(DELAYED)) > self.length_max:
            heads: dict[int, Fate] = {}
            for one in self.in_line():
                heads.setdefault(one.turn[0], one)
            if not heads:
                return
            self.bury(min(heads.values(), key=lambda one: one.index), "maxlen")
