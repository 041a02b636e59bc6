"""The mailbox of one device as a machine: which of its entries the owner gets, and when.

Entries have sequences; the owner has read up to `acked`. It gets a batch, and the next one when the
whole batch is settled and the position which follows from it is stored:

    IDLE -> READING -> OUT -> SAVING -> READING ...

Rule 1. The position never goes back, but for a rewind; it moves when a whole batch is settled.
Rule 2. What the owner had in hand when it left, or before a rewind, it gets again: a delivery has
        a tag of its own, and an answer to one which is not out any more means nothing.
Rule 3. The machine holds sequences; entries, keys and clocks are with its host.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.policy.retry import RETRY, backoff_ms, verdict
from queuelake.engine.policy.settings import Policy

# What a refusal of the owner means.
ADVANCE: Final = 0
RETRY_LATER: Final = 1
DEAD_LETTER: Final = 2

# How a delivery ended.
DONE: Final = 0
REJECTED: Final = 1
TOO_LARGE: Final = 2

ABSENT: Final = 0
IDLE: Final = 1
READING: Final = 2
OUT: Final = 3
SAVING: Final = 4


@final
class Attach(Command):
    """The owner reads from now on, from behind `acked`; at most `batch` entries at a time."""

    __slots__ = ("acked", "batch", "refusals")

    def __init__(self, acked: int, batch: int, refusals: int) -> None:
        self.acked: int = acked
        self.batch: int = batch
        self.refusals: int = refusals


@final
class Configure(Command):
    """From the next batch on, and for what is answered from now on."""

    __slots__ = ("batch", "refusals")

    def __init__(self, batch: int, refusals: int) -> None:
        self.batch: int = batch
        self.refusals: int = refusals


@final
class Detach(Command):
    __slots__ = ()


@final
class Look(Command):
    """There may be new entries: one was written, or nobody has looked for a while."""

    __slots__ = ()


@final
class Read(Command):
    """What the host found; `upto` is where it stopped before the end, 0: it has seen all."""

    __slots__ = ("seqs", "upto")

    def __init__(self, seqs: list[int], upto: int) -> None:
        self.seqs: list[int] = seqs
        self.upto: int = upto


@final
class Settle(Command):
    """The owner's answer to a delivery."""

    __slots__ = ("outcome", "reason", "tag")

    def __init__(self, tag: int, outcome: int, reason: int = 0) -> None:
        self.tag: int = tag
        self.outcome: int = outcome
        self.reason: int = reason  # of its PUBACK


@final
class Saved(Command):
    """This position is stored."""

    __slots__ = ("acked",)

    def __init__(self, acked: int) -> None:
        self.acked: int = acked


@final
class Rewind(Command):
    __slots__ = ("acked",)

    def __init__(self, acked: int) -> None:
        self.acked: int = acked


@final
class Tick(Command):
    """Time has passed: retries may be due."""

    __slots__ = ()


@final
class Fetch(Effect):
    """Look for up to `count` entries above `after`."""

    __slots__ = ("after", "count")

    def __init__(self, after: int, count: int) -> None:
        self.after: int = after
        self.count: int = count


@final
class Deliver(Effect):
    """Send an entry; `again`: the owner refused it before, and it may be gone meanwhile."""

    __slots__ = ("again", "seq", "tag")

    def __init__(self, seq: int, tag: int, again: bool) -> None:
        self.seq: int = seq
        self.tag: int = tag
        self.again: bool = again


@final
class Save(Effect):
    """Store the position."""

    __slots__ = ("acked",)

    def __init__(self, acked: int) -> None:
        self.acked: int = acked


@final
class Bury(Effect):
    """Copy an entry to the dead letters, in the commit of what follows."""

    __slots__ = ("attempts", "first_ms", "reason", "seq")

    def __init__(self, seq: int, attempts: int, first_ms: int, reason: int) -> None:
        self.seq: int = seq
        self.attempts: int = attempts
        self.first_ms: int = first_ms
        self.reason: int = reason


@final
class Wake(Effect):
    """Tick at this time."""

    __slots__ = ("due_ms",)

    def __init__(self, due_ms: int) -> None:
        self.due_ms: int = due_ms


@final
@mypyc_attr(acyclic=True)
class Held:
    """An entry of the batch which is not settled; `due_ms` 0: it is with the owner."""

    __slots__ = ("attempts", "due_ms", "first_ms", "seq")

    def __init__(self, seq: int, now_ms: int) -> None:
        self.seq: int = seq
        self.attempts: int = 1
        self.first_ms: int = now_ms
        self.due_ms: int = 0


@final
class Mailbox:
    """One owner which is awake."""

    __slots__ = ("_policy", "acked", "batch", "held", "highest", "phase", "refusals", "tag")

    def __init__(self, policy: Policy) -> None:
        self._policy: Policy = policy
        self.acked: int = 0
        self.batch: int = 1
        self.refusals: int = ADVANCE
        self.phase: int = ABSENT
        self.held: dict[int, Held] = {}  # by the tag of the last delivery
        self.highest: int = 0  # sequence of the batch
        self.tag: int = 0  # of the last delivery

    def apply(self, meta: Meta, command: Command) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(command, Settle):
            self._settle(meta, command, effects)
        elif isinstance(command, Look):
            if self.phase == IDLE:
                self._fetch(self.acked, effects)
        elif isinstance(command, Read):
            self._read(meta, command, effects)
        elif isinstance(command, Saved):
            if self.phase == SAVING and command.acked == self.acked:
                self._fetch(self.acked, effects)
        elif isinstance(command, Attach):
            self._attach(command, effects)
        elif isinstance(command, Configure):
            self._configure(command.batch, command.refusals)
        elif isinstance(command, Detach):
            self.held.clear()
            self.phase = ABSENT
        elif isinstance(command, Rewind):
            self._rewind(command, effects)
        elif isinstance(command, Tick):
            self._tick(meta, effects)
        else:
            raise AssertionError(f"no such command: {command!r}")
        return effects

    def is_out(self, tag: int) -> bool:
        held = self.held.get(tag)
        return held is not None and held.due_ms == 0

    def _attach(self, command: Attach, effects: list[Effect]) -> None:
        self._configure(command.batch, command.refusals)
        self.acked = command.acked
        self.held.clear()
        self._fetch(self.acked, effects)

    def _configure(self, batch: int, refusals: int) -> None:
        assert batch >= 1
        self.batch = batch
        self.refusals = refusals

    def _fetch(self, after: int, effects: list[Effect]) -> None:
        self.phase = READING
        effects.append(Fetch(after, self.batch))

    def _read(self, meta: Meta, command: Read, effects: list[Effect]) -> None:
        if self.phase != READING:
            return  # it left, or was rewound, while the host looked
        if not command.seqs:
            if command.upto:
                self._fetch(command.upto, effects)
            else:
                self.phase = IDLE
            return
        self.phase = OUT
        self.highest = command.seqs[-1]
        for seq in command.seqs:
            assert self.acked < seq <= self.highest
            self.tag += 1
            self.held[self.tag] = Held(seq, meta.now_ms)
            effects.append(Deliver(seq, self.tag, False))

    def _settle(self, meta: Meta, command: Settle, effects: list[Effect]) -> None:
        held = self.held.get(command.tag)
        if held is None or held.due_ms:
            return  # settled twice, or after a rewind: both are normal
        if command.outcome != DONE and self.refusals != ADVANCE:
            if command.outcome == REJECTED and self.refusals == RETRY_LATER:
                if verdict(self._policy, held.attempts, held.first_ms, meta.now_ms) == RETRY:
                    held.due_ms = meta.now_ms + backoff_ms(self._policy, held.attempts)
                    effects.append(Wake(held.due_ms))
                    return
            effects.append(Bury(held.seq, held.attempts, held.first_ms, command.reason))
        del self.held[command.tag]
        if not self.held:
            self._save(max(self.acked, self.highest), effects)

    def _save(self, acked: int, effects: list[Effect]) -> None:
        self.acked = acked
        self.phase = SAVING
        effects.append(Save(acked))

    def _rewind(self, command: Rewind, effects: list[Effect]) -> None:
        self.held.clear()
        self._save(command.acked, effects)

    def _tick(self, meta: Meta, effects: list[Effect]) -> None:
        due: list[int] = []
        for tag, held in self.held.items():
            if held.due_ms and held.due_ms <= meta.now_ms:
                due.append(tag)
        for tag in due:
            held = self.held.pop(tag)
            held.due_ms = 0
            held.attempts += 1
            self.tag += 1
            self.held[self.tag] = held
            effects.append(Deliver(held.seq, self.tag, True))
