"""Fuzz the decoder: `python -m tests.soak.fuzz --inputs 1000000 --seed 1`.

Each input is what one connection brings: a CONNECT of level 3, 4 or 5, then packets, some of them
mutated (tests/property/mutations.py), cut into pieces. Every input must give packets or a
`PeerError`. Speed is judged by steps, not by time: calls of `next_packet` and things found in
packets, and on the interpreted build calls of any function of the codec; both are bounded by the
length of the input. A call which never ends is killed by a watchdog with a traceback. Memory is
judged for a sample of the inputs by what one input allocates, and for the run by its peak.

The exit code is 1 when anything broke; the inputs which did are printed as hex.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

from queuelake.errors import PeerError
from queuelake.protocol import decoder as product
from queuelake.protocol.packets import Packet, Subscribe, Unsubscribe
from tests.property.mutations import mutate, pieces, wild
from tests.property.packets_strategy import LEVELS, NAMES_AT, TABLE, make_connect

PACKET_SIZE_MAX = 1 << 17
POOL_SIZE = 400  # right packets of each level to mutate; new ones for each batch
BATCH = 10_000
HANG_S = 60  # for a batch: hundreds of times what it needs
MEMORY_SAMPLE_EVERY = 500
MEMORY_FACTOR_MAX = 64  # a filter of 3 bytes becomes an object of 100
MEMORY_BASE_BYTES = 64 * 1024
RSS_GROWTH_MB_MAX = 64
CALLS_PER_BYTE_MAX = 2
CALLS_BASE = 50
COMPILED = not str(product.__file__).endswith(".py")


@dataclass
class Outcome:
    """What a run found; `broken` is empty when all went well."""

    inputs: int = 0
    bytes_fed: int = 0
    packets: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    steps_per_byte_max: float = 0.0
    memory_peak_bytes: int = 0
    seconds: float = 0.0
    rss_growth_mb: float = 0.0

    def __str__(self) -> str:
        refused = ", ".join(f"{name} {count}" for name, count in self.refused.most_common())
        found = ", ".join(f"{name} {count}" for name, count in self.found.most_common())
        return (
            f"{'compiled' if COMPILED else 'interpreted'}: {self.inputs} inputs, "
            f"{self.bytes_fed / 1e6:.1f} MB, {self.inputs / max(self.seconds, 1e-9):.0f} inputs/s, "
            f"{len(self.broken)} broken, at most {self.steps_per_byte_max:.2f} steps/byte, "
            f"{self.memory_peak_bytes / 1024:.0f} KiB for one input, "
            f"resident memory grew {self.rss_growth_mb:.1f} MB\n"
            f"refused {self.refused.total()}: {refused}\n"
            f"packets {self.packets}: {found}"
        )


class Fuzzer:
    """Makes inputs from a seed and judges the decoder by each of them."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)
        self._pool: dict[int, list[bytes]] = {}
        self._connects: dict[int, list[bytes]] = {}
        self.outcome = Outcome()

    def run(self, inputs: int) -> Outcome:
        outcome = self.outcome
        started = time.perf_counter()
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(inputs):
            if number % BATCH == 0:
                faulthandler.dump_traceback_later(HANG_S, exit=True)
                self._fill_pool()
                if number == BATCH:  # from here on nothing new needs to be imported or cached
                    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            chunks = self._make_input()
            if number % MEMORY_SAMPLE_EVERY == 0:
                self._judge_memory(chunks)
            else:
                self._judge(chunks)
        faulthandler.cancel_dump_traceback_later()
        after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 1024 if sys.platform != "darwin" else 1024 * 1024
        outcome.rss_growth_mb = (after_kb - before_kb) / unit
        if outcome.rss_growth_mb > RSS_GROWTH_MB_MAX:
            outcome.broken.append(f"resident memory grew {outcome.rss_growth_mb:.0f} MB")
        outcome.seconds = time.perf_counter() - started
        return outcome

    def _fill_pool(self) -> None:
        dice = self._dice
        for level in LEVELS:
            self._connects[level] = [make_connect(dice, level).wire for _ in range(POOL_SIZE // 4)]
            names = NAMES_AT[level]
            self._pool[level] = [
                TABLE[dice.choice(names)](dice, level).wire for _ in range(POOL_SIZE)
            ]

    def _make_input(self) -> list[bytes]:
        dice = self._dice
        level = dice.choice((3, 4, 5, 5, 5))
        connect = dice.choice(self._connects[level])
        if dice.randrange(4) == 0:
            connect = wild(dice, level) if dice.randrange(4) == 0 else mutate(dice, connect)
        stream = [connect]
        for _ in range(dice.randrange(5)):
            way = dice.randrange(8)
            if way == 0:
                stream.append(wild(dice, level))
            elif way < 4:
                stream.append(dice.choice(self._pool[level]))
            else:
                stream.append(mutate(dice, dice.choice(self._pool[level])))
        return pieces(dice, b"".join(stream))

    def _judge(self, chunks: list[bytes]) -> None:
        outcome = self.outcome
        size = sum(map(len, chunks))
        steps, calls = 0, 0
        try:
            if COMPILED:
                steps = self._decode(chunks)
            else:
                steps, calls = self._decode_counting_calls(chunks)
        except Exception as error:
            outcome.broken.append(f"{error!r} from {b''.join(chunks).hex()}")
        # A packet has two bytes, a filter or user property more; each piece ends with one None.
        if steps > size // 2 + len(chunks) + 1:
            outcome.broken.append(f"{steps} steps for {size} bytes: {b''.join(chunks).hex()}")
        if calls > CALLS_PER_BYTE_MAX * size + CALLS_BASE:
            outcome.broken.append(f"{calls} calls for {size} bytes: {b''.join(chunks).hex()}")
        outcome.inputs += 1
        outcome.bytes_fed += size
        outcome.steps_per_byte_max = max(
            outcome.steps_per_byte_max, max(steps, calls) / max(size, 32)
        )

    def _judge_memory(self, chunks: list[bytes]) -> None:
        tracemalloc.start()
        try:
            self._judge(chunks)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        outcome = self.outcome
        outcome.memory_peak_bytes = max(outcome.memory_peak_bytes, peak)
        size = sum(map(len, chunks))
        if peak > MEMORY_FACTOR_MAX * size + MEMORY_BASE_BYTES:
            outcome.broken.append(f"{peak} bytes for {size}: {b''.join(chunks).hex()}")

    def _decode(self, chunks: list[bytes]) -> int:
        """Decode all; returns the steps it took. A PeerError is a right answer."""
        outcome = self.outcome
        decoder = product.Decoder(PACKET_SIZE_MAX)
        steps = 0
        try:
            for chunk in chunks:
                decoder.feed(chunk)
                while True:
                    steps += 1
                    packet = decoder.next_packet()
                    if packet is None:
                        break
                    steps += _things_in(packet)
                    outcome.packets += 1
                    outcome.found[type(packet).__name__] += 1
        except PeerError as error:
            outcome.refused[type(error).__name__] += 1
        return steps

    def _decode_counting_calls(self, chunks: list[bytes]) -> tuple[int, int]:
        calls = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            if event == "call" and frame.f_globals["__name__"].startswith("queuelake."):
                calls += 1

        sys.setprofile(count)
        try:
            steps = self._decode(chunks)
        finally:
            sys.setprofile(None)
        return steps, calls


def _things_in(packet: Packet) -> int:
    if isinstance(packet, Subscribe):
        return len(packet.items) + len(packet.user) - 1
    return len(packet.filters) - 1 if isinstance(packet, Unsubscribe) else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--inputs", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    chosen = parser.parse_args(arguments)
    outcome = Fuzzer(chosen.seed).run(chosen.inputs)
    for line in outcome.broken[:20]:
        print(f"broken: {line}")
    print(f"fuzz: seed {chosen.seed}, {outcome}")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
