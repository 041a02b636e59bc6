"""Message queues without messages: the real operations over a service which only remembers."""

from __future__ import annotations

from queuelake.broker.message_queue_operations import MessageQueueOperations
from queuelake.broker.message_queues.metrics import MqMetrics
from queuelake.broker.queue_views import Place
from queuelake.broker.sleepers import Sleepers
from queuelake.control_mq import MqStats
from queuelake.control_queues import MessagePage, QueueMessage
from queuelake.errors import NameTakenError
from queuelake.mq_settings import (
    MqConfig,
    MqSettings,
    TooManyQueuesError,
)
from tests.api.live import LiveAdmin

MQ_NAMES = ["orders", "a.b-c_d", "/t1/#", "//t1/#", "/ünïcode/+", "/50%/with space"]


class FakeMessageQueues:
    """The service, and what a test can see of the calls to it."""

    def __init__(self) -> None:
        self.config = MqConfig()
        self.metrics = MqMetrics()
        self.by_name: dict[str, MqSettings] = {}
        self.collected = 0
        self.commits = 0
        self.restore()

    def restore(self) -> None:
        """The configuration and the queues are as at the beginning."""
        self.config = MqConfig()
        self.by_name = {
            name: MqSettings(name, name.removeprefix("/") if name[0] == "/" else "o/+")
            for name in MQ_NAMES
        }

    def names(self) -> list[str]:
        return sorted(self.by_name)

    def find(self, name: str) -> MqSettings | None:
        return self.by_name.get(name)

    def create(self, settings: MqSettings) -> None:
        if settings.name in self.by_name:
            raise NameTakenError(settings.name)
        limit = self.config.max_queue_count
        if limit and len(self.by_name) >= limit:
            raise TooManyQueuesError(len(self.by_name), limit)
        self.by_name[settings.name] = settings

    def update(self, settings: MqSettings) -> None:
        assert settings.name in self.by_name
        self.by_name[settings.name] = settings

    def delete(self, name: str) -> None:
        del self.by_name[name]

    def configure(self, config: MqConfig) -> None:
        self.config = config

    def collect_garbage(self) -> None:
        self.collected += 1

    def stats(self, name: str, sleepers: Sleepers | None = None) -> MqStats:
        assert name in self.by_name
        return MqStats(messages=len(name), oldest_age_ms=1500, acked=3)

    def messages(self, name: str, begin: Place, limit: int) -> MessagePage:
        assert name in self.by_name
        one = QueueMessage(id=f"{name}:0:1", partition=0, offset=1, topic="o/1", payload=b"x")
        return MessagePage([one], f"0:{begin.offset + limit}")

    def is_everywhere(self, name: str) -> bool:
        return name in self.by_name

    async def durable(self) -> None:
        self.commits += 1


def add_message_queues(admin: LiveAdmin) -> FakeMessageQueues:
    """Let the fake broker of an admin process have message queues."""
    fake = FakeMessageQueues()
    admin.broker.operations.update(MessageQueueOperations(fake, fake.durable).table())
    return fake
