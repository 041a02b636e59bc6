"""What an operator asks of message queues, over the control socket: no admin process is needed."""

from __future__ import annotations

from typing import Any

from queuelake.control_mq import MQ_CREATE, MQ_DELETE, MQ_QUEUES
from tests.ecq.control import Operator, encoded
from tests.mq.rest import Queue


class MqOperator(Operator):
    """As `MqRest`, of a broker which may be without REST."""

    def create(self, topic_filter: str, **settings: Any) -> Queue:
        body = encoded({"topic_filter": topic_filter, **settings})
        return Queue(self.call(MQ_CREATE, settings=body)["name"], topic_filter)

    def delete(self, queue: Queue) -> None:
        self.call(MQ_DELETE, name=queue.name)

    def names(self) -> list[str]:
        return [one["name"] for one in self.call(MQ_QUEUES, limit=1000, cursor="")["data"]]
