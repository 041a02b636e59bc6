"""Settings of device mailboxes (exclusive compacted queues): the `[ecq]` section.

Durations are kept as the text people wrote; a plain number means milliseconds. What is changed at
run time is stored as the difference to the file, so that a new file still counts.
"""

from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta

from queuelake.config_types import BoundedCount, PositiveTime, Section, Size, Time, parse_duration
from queuelake.errors import BadSettingsError

RejectPolicy = Literal["advance", "retry", "dlq"]


class BadEcqSettingsError(BadSettingsError):
    """Mailboxes cannot have these settings: `mistakes` has one entry for each."""


class EcqConfig(Section, frozen=True):
    """What all mailboxes share. 0 means: no limit."""

    # Accepted, without effect: one loop serialises the writes of every owner.
    writer_pool_size: Annotated[int, Meta(ge=0, le=10240)] = 0
    data_retention: PositiveTime = "7d"
    gc_interval: PositiveTime = "1h"
    # Below 32, the smallest receive maximum devices were built for.
    reader_batch_size: Annotated[int, Meta(ge=1, le=31)] = 5
    write_timeout: PositiveTime = "5s"
    read_timeout: PositiveTime = "5s"
    max_keys_per_queue: BoundedCount = 0
    max_bytes_per_queue: Size = 0
    reject_policy: RejectPolicy = "advance"
    state_retention: Time = "30d"
    puback_no_match: bool = False

    @property
    def data_retention_ms(self) -> int:
        return parse_duration(self.data_retention)

    @property
    def gc_interval_ms(self) -> int:
        return parse_duration(self.gc_interval)

    @property
    def write_timeout_ms(self) -> int:
        return parse_duration(self.write_timeout)

    @property
    def read_timeout_ms(self) -> int:
        return parse_duration(self.read_timeout)

    @property
    def state_retention_ms(self) -> int:
        return parse_duration(self.state_retention)


def read_config(old: EcqConfig, body: object) -> EcqConfig:
    """The configuration with what a JSON object says; what it does not say stays.

    Raises:
        BadEcqSettingsError: one entry for each mistake; nothing of the change may be used.
    """
    from queuelake.config_layers import Layers, Table, kind_of

    if not isinstance(body, dict):
        raise BadEcqSettingsError(["the body is a JSON object; this is another value"])
    layers = Layers()
    values = cast(Table, msgspec.to_builtins(old))
    layers.lay_table("", "", body, kind_of(EcqConfig), values)
    if layers.mistakes:
        raise BadEcqSettingsError(layers.mistakes)
    return msgspec.convert(values, EcqConfig)
