"""What all device mailboxes share, `[ecq]`, and vehicle fan-out, `[sdv]`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from queuelake.cli.applying.change import Change, Table, difference
from queuelake.cli.rest import Rest, path
from queuelake.config_types import Section
from queuelake.ecq_settings import EcqConfig
from queuelake.ecq_settings import read_config as read_ecq
from queuelake.errors import BadSettingsError
from queuelake.sdv_settings import SdvConfig
from queuelake.sdv_settings import read_config as read_sdv

T = TypeVar("T", bound=Section)


def plan_ecq(rest: Rest, table: Table, _prune: bool, mistakes: list[str]) -> list[Change]:
    return _plan(rest, "ecq", table, EcqConfig, read_ecq, mistakes)


def plan_sdv(rest: Rest, table: Table, _prune: bool, mistakes: list[str]) -> list[Change]:
    return _plan(rest, "sdv", table, SdvConfig, read_sdv, mistakes)


def export_service(rest: Rest, section: str) -> Table:
    found: Table = rest.get(path(section, "config"))["origin"]
    return found


def _plan(
    rest: Rest,
    section: str,
    table: Table,
    kind: type[T],
    read: Callable[[T, object], T],
    mistakes: list[str],
) -> list[Change]:
    old = msgspec.convert(export_service(rest, section), kind)
    try:
        new = read(old, dict(table))
    except BadSettingsError as error:
        mistakes += [f"{section}.{mistake}" for mistake in error.mistakes]
        return []
    before, after = difference(msgspec.to_builtins(old), msgspec.to_builtins(new))
    put = partial(rest.call, "PUT", path(section, "config"), table)
    return [Change("change", section, "", before, after, put)] if after else []
