"""Which rows of a batch are whose, where a node has several stores: a vehicle is in that of its
name, a message of a message queue in that of its topic, as if they had been published. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from queuelake.control_pipeline import StageTarget
from queuelake.export.staged_columns import column
from queuelake.placing import Placing

Choose = Callable[[Iterator[pa.Table]], Iterator[pa.Table]]  # some of the rows

NOWHERE: Final = 0  # rows which are refused, wherever they are


def everything(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return blocks


def part_of(placing: Placing, target: StageTarget, number: int) -> Choose:
    """Chooses the rows which belong to the store of this number."""

    def choose(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for block in blocks:
            keep = [place == number for place in places(block, target, placing)]
            if all(keep):
                yield block
            elif any(keep):
                yield block.filter(pa.array(keep)).combine_chunks()

    return choose


def places(block: pa.Table, target: StageTarget, placing: Placing) -> list[int]:
    """Of each row the number of its store."""
    if target.kind == "fanout":
        return [_of_vehicle(placing, vin) for vin in column(block, "id").to_pylist()]
    # A row without a topic has that of the queue, which is a filter: see `staged_rows`.
    own = target.topic_filter
    if "topic" not in block.column_names:
        return [_of_topic(placing, own)] * block.num_rows
    return [_of_topic(placing, topic or own) for topic in column(block, "topic").to_pylist()]


def _of_vehicle(placing: Placing, vin: str | None) -> int:
    return NOWHERE if vin is None else placing.of(vin.encode())


def _of_topic(placing: Placing, topic: str) -> int:
    return max(NOWHERE, placing.of_topic(topic.encode()))
