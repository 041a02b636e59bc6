"""What the admin process may ask about vehicle fan-out: the operations of control_sdv.py.

They run on the loop and stay short; one which changes something answers when the change is durable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec

from queuelake import control_sdv as ops
from queuelake.broker.operation import Operation
from queuelake.control_sdv import (
    SdvCancelled,
    SdvConfigInfo,
    SdvConfigInUse,
    SdvConfigOrigin,
    SdvFigures,
    SdvGcAnswer,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.errors import RefusedError
from queuelake.sdv_settings import BadSdvSettingsError, SdvConfig, read_config


class FanoutService(Protocol):
    """What is asked of the fan-out of a broker."""

    @property
    def config(self) -> SdvConfig: ...
    def status(self) -> SdvStatus: ...
    def inspect(self, vin: str) -> SdvVehicle: ...
    def request(self, request_id: str) -> SdvRequest: ...
    def requests(self, limit: int, cursor: str) -> SdvRequestPage: ...
    def cancel(self, request_id: str, vins: list[str]) -> Iterator[SdvCancelled]: ...
    def collect_garbage(self) -> bool: ...
    def configure(self, config: SdvConfig) -> None: ...
    def figures(self) -> SdvFigures: ...


class FanoutOperations:
    """Each method answers one named request about `fanout`; `durable` waits for the commit."""

    def __init__(self, fanout: FanoutService, durable: Callable[[], Awaitable[None]]) -> None:
        self._fanout = fanout
        self._durable = durable

    def table(self) -> dict[str, Operation]:
        return {
            ops.SDV_STATUS: self.status,
            ops.SDV_INSPECT: self.inspect,
            ops.SDV_REQUEST: self.request,
            ops.SDV_REQUESTS: self.requests,
            ops.SDV_CANCEL: self.cancel,
            ops.SDV_GC: self.gc,
            ops.SDV_CONFIG: self.config,
            ops.SDV_CONFIGURE: self.configure,
        }

    def status(self, _: dict[str, object]) -> SdvStatus:
        return self._fanout.status()

    def inspect(self, args: dict[str, object]) -> SdvVehicle:
        return self._fanout.inspect(str(args.get("vin", "")))

    def request(self, args: dict[str, object]) -> SdvRequest:
        return self._fanout.request(str(args.get("request_id", "")))

    def requests(self, args: dict[str, object]) -> SdvRequestPage:
        limit = args.get("limit", 100)
        if not isinstance(limit, int) or not 1 <= limit <= ops.REQUESTS_PER_PAGE_MAX:
            raise RefusedError(f"limit is {limit!r}, may be 1 to {ops.REQUESTS_PER_PAGE_MAX}")
        return self._fanout.requests(limit, str(args.get("cursor") or ""))

    async def cancel(self, args: dict[str, object]) -> SdvCancelled:
        request_id, vins = str(args.get("request_id", "")), args.get("vins") or []
        if not isinstance(vins, list) or not all(isinstance(vin, str) for vin in vins):
            raise RefusedError("vins is a list of strings; this is another value")
        if len(vins) > ops.VINS_PER_CANCEL_MAX:
            problem = f"{len(vins)} vins, {ops.VINS_PER_CANCEL_MAX} may be cancelled at once"
            raise RefusedError(problem)
        done = SdvCancelled(request_id, 0, 0)
        for part in self._fanout.cancel(request_id, vins):
            done = SdvCancelled(
                request_id, done.cancelled + part.cancelled, done.in_flight + part.in_flight
            )
            await asyncio.sleep(0)  # others have their turn between two slices
        await self._durable()
        return done

    def gc(self, _: dict[str, object]) -> SdvGcAnswer:
        return SdvGcAnswer(self._fanout.collect_garbage())

    def config(self, _: dict[str, object]) -> SdvConfigInfo:
        config = self._fanout.config
        return SdvConfigInfo(_origin(config), _in_use(config))

    async def configure(self, args: dict[str, object]) -> SdvConfigInfo:
        body = args.get("settings")
        assert isinstance(body, bytes)
        try:
            changes: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = f"the body is a JSON object; this is none: {error}"
            raise BadSdvSettingsError([problem]) from error
        self._fanout.configure(read_config(self._fanout.config, changes))
        await self._durable()
        return self.config({})

    def figures(self) -> SdvFigures:
        return self._fanout.figures()


def pool_size(config: SdvConfig) -> int:
    return config.dispatcher_pool_size or os.cpu_count() or 1


def _origin(config: SdvConfig) -> SdvConfigOrigin:
    return msgspec.convert(msgspec.to_builtins(config), SdvConfigOrigin)


def _in_use(config: SdvConfig) -> SdvConfigInUse:
    return SdvConfigInUse(
        pool_size(config),
        config.data_retention_ms,
        config.gc_interval_ms,
        config.topic_prefix,
        config.same_request,
        config.on_invalid,
        config.on_reject,
        config.keep_referenced,
        config.verify_sha1,
        config.heartbeat_topics,
        config.max_pending_per_vehicle,
        config.ack_timeout_ms,
    )
