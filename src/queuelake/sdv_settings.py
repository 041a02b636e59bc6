"""Settings of vehicle fan-out: the `[sdv]` section.

Durations are kept as the text people wrote; a plain number means milliseconds. What is changed at
run time is stored as the difference to the file, so that a new file still counts. The rules about
topic templates are in `sdv_rules.py`, which is imported only when something is read.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from queuelake.config_types import BoundedCount, PositiveTime, Section, Time, parse_duration
from queuelake.errors import BadSettingsError

SameRequest = Literal["append", "replace", "ignore"]
OnInvalid = Literal["puback", "disconnect"]
OnReject = Literal["done", "retry", "dlq"]

VIN: Final = "{VIN}"  # where a topic template names the vehicle


class BadSdvSettingsError(BadSettingsError):
    """Fan-out cannot have these settings: `mistakes` has one entry for each."""


class SdvConfig(Section, frozen=True):
    """Vehicle fan-out. 0 means: no limit."""

    # How many names dispatchers have; one loop does the work of all of them. 0: one for each core.
    dispatcher_pool_size: Annotated[int, Meta(ge=0, le=10240)] = 0
    data_retention: PositiveTime = "7d"
    gc_interval: PositiveTime = "1h"
    topic_prefix: str = "agent/{VIN}/proxy/request"
    same_request: SameRequest = "append"
    on_invalid: OnInvalid = "puback"
    on_reject: OnReject = "done"
    keep_referenced: bool = True
    verify_sha1: bool = False
    heartbeat_topics: list[str] = field(
        default_factory=lambda: ["ecp/{VIN}/online", "ecp/{VIN}/heartbeat"]
    )
    max_pending_per_vehicle: BoundedCount = 0
    ack_timeout: Time = "0s"

    @property
    def data_retention_ms(self) -> int:
        return parse_duration(self.data_retention)

    @property
    def gc_interval_ms(self) -> int:
        return parse_duration(self.gc_interval)

    @property
    def ack_timeout_ms(self) -> int:
        return parse_duration(self.ack_timeout)


def read_config(old: SdvConfig, body: object) -> SdvConfig:
    """The configuration with what a JSON object says; what it does not say stays.

    `topic_prefix` cannot be changed so, only in the file.

    Raises:
        BadSdvSettingsError: one entry for each mistake; nothing of the change may be used.
    """
    from queuelake import sdv_rules

    return sdv_rules.read_config(old, body)
