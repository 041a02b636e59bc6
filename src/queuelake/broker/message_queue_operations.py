"""What the admin process may ask about message queues: the operations of control_mq.py.

As with the operations of durable queues, they run on the loop and stay short, and one which changes
something answers when the change is durable. While message queues are switched off, only the
configuration answers.
"""

from __future__ import annotations

import base64
import binascii
import bisect
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from queuelake import control_mq as ops
from queuelake.broker.operation import Operation, page_limit
from queuelake.broker.queue_views import Place, begin_of
from queuelake.control_mq import (
    MqConfigInfo,
    MqInfo,
    MqPage,
    MqPageMeta,
    MqStats,
)
from queuelake.control_queues import MessagePage
from queuelake.errors import RefusedError
from queuelake.mq_settings import (
    BadMqSettingsError,
    MqConfig,
    MqNotFoundError,
    MqSettings,
    MqUnavailableError,
    legacy_name,
    read_config,
    read_new,
    read_update,
    show,
    show_config,
)

CURSOR_PREFIX = b"mq:"


class MessageQueueService(Protocol):
    """What is asked of the message queues of a broker."""

    @property
    def config(self) -> MqConfig: ...
    def names(self) -> list[str]: ...
    def find(self, name: str) -> MqSettings | None: ...
    def create(self, settings: MqSettings) -> None: ...
    def update(self, settings: MqSettings) -> None: ...
    def delete(self, name: str) -> None: ...
    def configure(self, config: MqConfig) -> None: ...
    def collect_garbage(self) -> None: ...
    def stats(self, name: str) -> MqStats: ...
    def messages(self, name: str, begin: Place, limit: int) -> MessagePage: ...
    def is_everywhere(self, name: str) -> bool: ...


class MessageQueueOperations:
    """Each method answers one named request about `queues`; `durable` waits for the commit."""

    def __init__(self, queues: MessageQueueService, durable: Callable[[], Awaitable[None]]) -> None:
        self._queues = queues
        self._durable = durable

    def table(self) -> dict[str, Operation]:
        return {
            ops.MQ_QUEUES: self.queues,
            ops.MQ_QUEUE: self.queue,
            ops.MQ_CREATE: self.create,
            ops.MQ_UPDATE: self.update,
            ops.MQ_DELETE: self.delete,
            ops.MQ_STATS: self.stats,
            ops.MQ_MESSAGES: self.messages,
            ops.MQ_CONFIG: self.config,
            ops.MQ_CONFIGURE: self.configure,
            ops.MQ_COLLECT_GARBAGE: self.collect_garbage,
            ops.QUEUE_EVERYWHERE: self.is_everywhere,
        }

    # Queues

    def queues(self, args: dict[str, object]) -> MqPage:
        self._check_enabled()
        limit = page_limit(args, ops.QUEUES_PER_PAGE_MAX)
        after = read_cursor(str(args.get("cursor", "")))
        known = self._queues.names()
        start = bisect.bisect_right(known, after) if after else 0
        page: list[MqInfo] = []
        at, left = start, ops.PAGE_BYTES_MAX
        while at < len(known) and len(page) < limit and left > 0:
            settings = self._queues.find(known[at])
            at += 1
            if settings is not None:
                page.append(_info(settings))
                left -= len(settings.name) + len(settings.topic_filter)
                left -= len(settings.key_expression)
        if at == len(known):
            return MqPage(page, MqPageMeta(False))
        return MqPage(page, MqPageMeta(True, cursor_of(known[at - 1])))

    def queue(self, args: dict[str, object]) -> MqInfo:
        return _info(self._queue(args))

    async def create(self, args: dict[str, object]) -> MqInfo:
        self._check_enabled()
        settings = read_new(_settings(args))
        self._queues.create(settings)
        await self._durable()
        return _info(settings)

    async def update(self, args: dict[str, object]) -> MqInfo:
        settings = read_update(self._queue(args), _settings(args))
        self._queues.update(settings)
        await self._durable()
        return _info(settings)

    async def delete(self, args: dict[str, object]) -> None:
        self._queues.delete(self._queue(args).name)
        await self._durable()

    def stats(self, args: dict[str, object]) -> MqStats:
        return self._queues.stats(self._queue(args).name)

    def messages(self, args: dict[str, object]) -> MessagePage:
        limit, begin = page_limit(args), begin_of(args)
        return self._queues.messages(self._queue(args).name, begin, limit)

    # All of them

    def config(self, _: dict[str, object]) -> MqConfigInfo:
        return msgspec.convert(show_config(self._queues.config), MqConfigInfo)

    async def configure(self, args: dict[str, object]) -> None:
        config = read_config(self._queues.config, _settings(args))
        count = len(self._queues.names())
        if not config.enable and count:
            reason = f"there are {count} message queues; allowed: false when there is none"
            raise BadMqSettingsError([f"enable = false: {reason}"])
        self._queues.configure(config)
        await self._durable()

    async def collect_garbage(self, _: dict[str, object]) -> None:
        self._check_enabled()
        self._queues.collect_garbage()
        await self._durable()

    def is_everywhere(self, args: dict[str, object]) -> bool:
        """For whoever has several brokers to choose from: asked of the one which has the durable
        queues of this name."""
        return self._queues.is_everywhere(str(args.get("name", "")))

    # Shared

    def _queue(self, args: dict[str, object]) -> MqSettings:
        """The queue of this name; else the one of this topic filter which has no name."""
        self._check_enabled()
        name = str(args.get("name", ""))
        found = self._queues.find(name) or self._queues.find(legacy_name(name))
        if found is None:
            raise MqNotFoundError
        return found

    def _check_enabled(self) -> None:
        if not self._queues.config.enable:
            raise MqUnavailableError("Not enabled")


def _info(settings: MqSettings) -> MqInfo:
    return msgspec.convert(show(settings), MqInfo)


def _settings(args: dict[str, object]) -> object:
    body = args.get("settings")
    assert isinstance(body, bytes)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMqSettingsError([f"the body is a JSON object; this is none: {error}"]) from error


def cursor_of(name: str) -> str:
    return base64.urlsafe_b64encode(CURSOR_PREFIX + name.encode()).decode()


def read_cursor(cursor: str) -> str:
    """The last name of the page before; "" for the first page."""
    if not cursor:
        return ""
    try:
        decoded = base64.b64decode(cursor, b"-_", validate=True)
        if decoded.startswith(CURSOR_PREFIX) and decoded != CURSOR_PREFIX:
            return decoded.removeprefix(CURSOR_PREFIX).decode()
    except (binascii.Error, ValueError):
        pass
    raise RefusedError("Invalid cursor")
