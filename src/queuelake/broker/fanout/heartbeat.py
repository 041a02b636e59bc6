"""Publishes by which a vehicle says that it is there; they go their ordinary way besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from queuelake.broker.router import NOT_TAKEN, Capture

if TYPE_CHECKING:
    from queuelake.protocol.message import Message


@final
class Heartbeat(Capture):
    """One topic template; the level of the VIN is a wildcard."""

    __slots__ = ("_heard", "_level")

    def __init__(self, template: str, placeholder: str, heard: Callable[[str], None]) -> None:
        levels = template.split("/")
        self._level: int = levels.index(placeholder)
        self._heard: Callable[[str], None] = heard
        self.topic_filter = template.replace(placeholder, "+").encode()
        self.is_lenient = True

    def capture(self, message: Message) -> int:
        # Another client which writes there says nothing about the vehicle.
        vin = message.publisher
        if message.topic.split(b"/")[self._level] == vin.encode():
            self._heard(vin)
        return NOT_TAKEN
