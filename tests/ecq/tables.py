"""The tables of a store by their names, which are part of the contract, read beside the broker."""

from __future__ import annotations

import lmdb

from tests.harness.broker import BrokerProcess

TABLES_MAX = 128


def row_counts(broker: BrokerProcess, *names: str) -> list[int]:
    """How many rows these tables have now, all seen at one moment."""
    path = str(broker.data_dir / "store")
    with lmdb.open(path, readonly=True, max_dbs=TABLES_MAX, create=False) as environment:
        tables = [environment.open_db(name.encode(), create=False) for name in names]
        with environment.begin() as view:
            return [int(view.stat(table)["entries"]) for table in tables]
