"""What the server announces in CONNACK, as plain numbers for those who read them per message."""

from __future__ import annotations

from typing import final

from queuelake.settings import Mqtt


@final
class Terms:
    """A copy of the settings in `[mqtt]` which a PUBLISH is checked against."""

    __slots__ = ("alias_max", "qos_max", "receive_max", "retain_available", "topic_levels_max")

    def __init__(self, mqtt: Mqtt) -> None:
        self.alias_max: int = mqtt.topic_alias_max
        self.qos_max: int = mqtt.qos_max
        self.receive_max: int = mqtt.receive_max
        self.retain_available: bool = mqtt.retain_available
        self.topic_levels_max: int = mqtt.topic_levels_max
