"""What the admin process may ask about device mailboxes: the operations of control_ecq.py.

They run on the loop and stay short; one which changes something answers when the change is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from queuelake import control_ecq as ops
from queuelake.broker.operation import Operation, page_limit
from queuelake.control_ecq import (
    EcqConfigInfo,
    EcqConfigInUse,
    EcqConfigOrigin,
    EcqEntryPage,
    EcqFigures,
    EcqGcAnswer,
    EcqInspection,
    EcqOwnerPage,
    EcqPosition,
    EcqStatus,
)
from queuelake.ecq_settings import BadEcqSettingsError, EcqConfig, read_config


class MailboxService(Protocol):
    """What is asked of the mailboxes of a broker."""

    @property
    def config(self) -> EcqConfig: ...
    def status(self) -> EcqStatus: ...
    def inspect(self, owner: str) -> EcqInspection: ...
    def owners(self, cursor: str, limit: int) -> EcqOwnerPage: ...
    def entries(self, owner: str, cursor: str, limit: int) -> EcqEntryPage: ...
    def collect_garbage(self) -> bool: ...
    def configure(self, config: EcqConfig) -> None: ...
    def rewind(self, owner: str, body: bytes) -> int: ...
    def figures(self) -> EcqFigures: ...


class EcqOperations:
    """Each method answers one named request about `mailboxes`; `durable` waits for the commit."""

    def __init__(self, mailboxes: MailboxService, durable: Callable[[], Awaitable[None]]) -> None:
        self._mailboxes = mailboxes
        self._durable = durable

    def table(self) -> dict[str, Operation]:
        return {
            ops.ECQ_STATUS: self.status,
            ops.ECQ_INSPECT: self.inspect,
            ops.ECQ_OWNERS: self.owners,
            ops.ECQ_ENTRIES: self.entries,
            ops.ECQ_GC: self.gc,
            ops.ECQ_CONFIG: self.config,
            ops.ECQ_CONFIGURE: self.configure,
            ops.ECQ_REWIND: self.rewind,
        }

    def status(self, _: dict[str, object]) -> EcqStatus:
        return self._mailboxes.status()

    def inspect(self, args: dict[str, object]) -> EcqInspection:
        return self._mailboxes.inspect(str(args.get("owner", "")))

    def owners(self, args: dict[str, object]) -> EcqOwnerPage:
        limit = page_limit(args, ops.OWNERS_PER_PAGE_MAX)
        return self._mailboxes.owners(str(args.get("cursor", "")), limit)

    def entries(self, args: dict[str, object]) -> EcqEntryPage:
        limit = page_limit(args, ops.ENTRIES_PER_PAGE_MAX)
        owner, cursor = str(args.get("owner", "")), str(args.get("cursor", ""))
        return self._mailboxes.entries(owner, cursor, limit)

    def gc(self, _: dict[str, object]) -> EcqGcAnswer:
        return EcqGcAnswer(self._mailboxes.collect_garbage())

    def config(self, _: dict[str, object]) -> EcqConfigInfo:
        config = self._mailboxes.config
        return EcqConfigInfo(_origin(config), _in_use(config))

    async def configure(self, args: dict[str, object]) -> EcqConfigInfo:
        self._mailboxes.configure(read_config(self._mailboxes.config, _json(args, "settings")))
        await self._durable()
        return self.config({})

    async def rewind(self, args: dict[str, object]) -> EcqPosition:
        owner, body = str(args.get("owner", "")), args.get("body")
        assert isinstance(body, bytes)
        acked = self._mailboxes.rewind(owner, body)
        await self._durable()
        return EcqPosition(owner, acked)

    def figures(self) -> EcqFigures:
        return self._mailboxes.figures()


def _origin(config: EcqConfig) -> EcqConfigOrigin:
    return msgspec.convert(msgspec.to_builtins(config), EcqConfigOrigin)


def _in_use(config: EcqConfig) -> EcqConfigInUse:
    return EcqConfigInUse(
        config.writer_pool_size,
        config.data_retention_ms,
        config.gc_interval_ms,
        config.reader_batch_size,
        config.write_timeout_ms,
        config.read_timeout_ms,
        config.max_keys_per_queue,
        config.max_bytes_per_queue,
        config.reject_policy,
        config.state_retention_ms,
        config.puback_no_match,
    )


def _json(args: dict[str, object], name: str) -> object:
    body = args.get(name)
    assert isinstance(body, bytes)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadEcqSettingsError([f"the body is a JSON object; this is none: {error}"]) from error
