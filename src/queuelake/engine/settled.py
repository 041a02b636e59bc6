"""Which sequences of a partition are settled: one number, and bits above it.

Almost all settlements come nearly in order, so `upto` says most of it. What is settled above it is
kept as bits in blocks of 1,024: a message which is stuck for hours costs 128 bytes for each block
which has passed it, in memory and in the store, and nothing for each message.
"""

from __future__ import annotations

from typing import Final, final

BLOCK: Final = 1024
FULL: Final = (1 << BLOCK) - 1


@final
class Settled:
    """`upto` and every sequence whose bit is set in its block."""

    __slots__ = ("blocks", "count_above", "dirty", "upto")

    def __init__(self, upto: int = 0) -> None:
        self.upto: int = upto
        self.blocks: dict[int, int] = {}
        self.count_above: int = 0
        self.dirty: set[int] = set()  # blocks which differ from the store

    def __contains__(self, seq: int) -> bool:
        if seq <= self.upto:
            return True
        if not self.blocks:
            return False
        return bool(self.blocks.get(seq // BLOCK, 0) >> (seq % BLOCK) & 1)

    def add(self, seq: int) -> None:
        """Settle one sequence which is not settled yet."""
        if seq == self.upto + 1 and not self.blocks:
            self.upto = seq
            return
        block = seq // BLOCK
        self.blocks[block] = self.blocks.get(block, 0) | 1 << seq % BLOCK
        self.dirty.add(block)
        self.count_above += 1
        if seq == self.upto + 1:
            self._advance()

    def add_between(self, before: int, after: int) -> None:
        """Settle everything between two sequences, of which the first is not settled and stays."""
        assert before > self.upto
        first, last = before + 1, after - 1
        while first <= last:
            block = first // BLOCK
            end = min(last, block * BLOCK + BLOCK - 1)
            bits = (1 << end - first + 1) - 1 << first % BLOCK
            former = self.blocks.get(block, 0)
            self.blocks[block] = former | bits
            self.count_above += (bits & ~former).bit_count()
            self.dirty.add(block)
            first = end + 1

    def _advance(self) -> None:
        """Move `upto` over everything settled right above it."""
        blocks = self.blocks
        seq = self.upto + 1
        while True:
            block = seq // BLOCK
            bits = blocks.get(block)
            if bits is None:
                break
            run = _ones(bits >> seq % BLOCK)
            seq += run
            self.count_above -= run
            below = seq - block * BLOCK
            self._keep(block, bits >> below << below)
            if below < BLOCK:
                break
        self.upto = seq - 1

    def raise_to(self, upto: int) -> None:
        """Everything up to here counts as settled: the messages are gone."""
        if upto <= self.upto:
            return
        if not self.blocks:
            self.upto = upto
            return
        for block in sorted(self.blocks):
            start = block * BLOCK
            if start > upto:
                break
            bits = self.blocks[block]
            below = min(upto - start + 1, BLOCK)
            kept = bits >> below << below
            self.count_above -= bits.bit_count() - kept.bit_count()
            self._keep(block, kept)
        self.upto = upto
        self._advance()

    def _keep(self, block: int, bits: int) -> None:
        if bits:
            self.blocks[block] = bits
        else:
            del self.blocks[block]
        self.dirty.add(block)

    def restore(self, block: int, bits: int) -> None:
        """A block as the store has it."""
        self.blocks[block] = bits
        self.count_above += bits.bit_count()

    def copy(self) -> Settled:
        """The same sequences, none of them in the store yet."""
        other = Settled(self.upto)
        other.blocks = self.blocks.copy()
        other.count_above = self.count_above
        other.dirty = set(self.blocks)
        return other

    def next_unsettled(self, seq: int) -> int:
        """The first sequence from `seq` on which is not settled."""
        seq = max(seq, self.upto + 1)
        while (bits := self.blocks.get(seq // BLOCK)) is not None:
            run = _ones(bits >> seq % BLOCK)
            seq += run
            if seq % BLOCK or not run:
                break
        return seq

    def next_settled(self, seq: int, last: int) -> int:
        """The first sequence from `seq` to `last` which is settled; without one, behind `last`."""
        if seq <= self.upto:
            return seq
        if not self.blocks:
            return last + 1
        while seq <= last:
            bits = self.blocks.get(seq // BLOCK, 0) >> seq % BLOCK
            if bits:
                return min(last + 1, seq + (bits & -bits).bit_length() - 1)
            seq = (seq // BLOCK + 1) * BLOCK
        return last + 1

    def unsettled_ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """As `unsettled`: first and last of those which follow each other."""
        found: list[tuple[int, int]] = []
        start = self.next_unsettled(first)
        while start <= last:
            stop = self.next_settled(start, last)
            found.append((start, stop - 1))
            start = self.next_unsettled(stop)
        return found

    def shared_with(self, other: Settled) -> Settled:
        """What is settled in both, none of it in the store yet."""
        low, high = (self, other) if self.upto <= other.upto else (other, self)
        shared = Settled(low.upto)
        for block, bits in low.blocks.items():
            start = block * BLOCK
            below = min(max(high.upto + 1 - start, 0), BLOCK)
            bits &= (1 << below) - 1 | high.blocks.get(block, 0)
            if bits:
                shared.restore(block, bits)
        shared.dirty = set(shared.blocks)
        return shared

    def unsettled(self, first: int, last: int) -> list[int]:
        """The sequences from `first` to `last` which are not settled, in order."""
        found: list[int] = []
        seq = max(first, self.upto + 1)
        while seq <= last:
            block = seq // BLOCK
            open_bits = (self.blocks.get(block, 0) ^ FULL) >> seq % BLOCK
            end = min(last, block * BLOCK + BLOCK - 1)
            while open_bits and seq <= end:
                gap = (open_bits & -open_bits).bit_length() - 1
                seq += gap
                if seq <= end:
                    found.append(seq)
                open_bits >>= gap + 1
                seq += 1
            seq = end + 1
        return found


def _ones(bits: int) -> int:
    """How many of the lowest bits are set without a gap."""
    return (~bits & (bits + 1)).bit_length() - 1
