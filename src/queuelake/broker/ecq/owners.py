"""What is remembered of owners between commits: as many as were active lately, no more.

The store has the truth. It is asked for an owner which is not here, always between two commits, so
that an owner may be forgotten at any time.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import ReadTransaction

OWNERS_MAX: Final = 20_000


@final
class Owner:
    """`sizes` by the digest of the key, None: nobody has had to know. Sequences below `claimed`
    may be given without telling the store."""

    __slots__ = ("bytes", "claimed", "digest", "name", "next_seq", "sizes")

    def __init__(self, name: bytes, digest: bytes, next_seq: int, claimed: int) -> None:
        self.name: bytes = name
        self.digest: bytes = digest
        self.next_seq: int = next_seq
        self.claimed: int = claimed
        self.sizes: dict[bytes, int] | None = None
        self.bytes: int = 0

    def measure(self, view: ReadTransaction) -> dict[bytes, int]:
        """Find out what the store has of it."""
        sizes: dict[bytes, int] = {}
        total = 0
        for key, value in view.scan(
            api.ECQ_INDEX, t.index_key(self.digest, 0), t.index_end(self.digest)
        ):
            row = t.read_index_row(key, value)
            sizes[t.key_digest(row.key)] = row.size
            total += row.size
        self.sizes = sizes
        self.bytes = total
        return sizes

    def grow(self, sizes: dict[bytes, int], key: bytes, size: int) -> None:
        self.bytes += size - sizes.get(key, 0)
        sizes[key] = size


@final
class Owners:
    """Two generations: what was not asked for during the last one goes."""

    __slots__ = ("_former", "_recent", "first_seq")

    def __init__(self) -> None:
        self._recent: dict[bytes, Owner] = {}
        self._former: dict[bytes, Owner] = {}
        self.first_seq: int = 1  # of an owner which is new, or of whom nothing is left

    def known(self, name: bytes) -> Owner | None:
        owner = self._recent.get(name)
        if owner is not None:
            return owner
        owner = self._former.get(name)
        if owner is not None:
            self._keep(owner)
        return owner

    def get(self, view: ReadTransaction, name: bytes) -> Owner:
        owner = self.known(name)
        if owner is not None:
            return owner
        digest = t.digest(name)
        value = view.get(api.ECQ_SEQNO, digest)
        if value is None:
            owner = Owner(name, digest, self.first_seq, 0)
        else:
            last = t.last_written(view, digest, value)[0]
            owner = Owner(name, digest, last + 1, t.read_numbers(value)[0])
        self._keep(owner)
        return owner

    def _keep(self, owner: Owner) -> None:
        if len(self._recent) >= OWNERS_MAX // 2:
            self._former = self._recent
            self._recent = {}
        self._recent[owner.name] = owner

    def forget(self, name: bytes) -> None:
        self._recent.pop(name, None)
        self._former.pop(name, None)

    def forget_sizes(self) -> None:
        for generation in (self._recent, self._former):
            for owner in generation.values():
                owner.sizes = None

    def clear(self) -> None:
        self._recent = {}
        self._former = {}

    def __len__(self) -> int:
        return len(self._recent.keys() | self._former.keys())
