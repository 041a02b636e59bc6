"""The REST API of message queues, as a test calls it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.api.live import Answer
from tests.api.queue_rest import Rest
from tests.queues.client import wait_until

QUEUES = "message_queues/queues"
CONFIG = "message_queues/config"


@dataclass(frozen=True)
class Queue:
    """A queue which exists: `name` is what REST calls it, `/{filter}` for a legacy one."""

    name: str
    topic_filter: str

    @property
    def address(self) -> str:
        """What a client subscribes to."""
        return f"$q/{self.topic_filter}" if self.name.startswith("/") else f"$queue/{self.name}"

    @property
    def root(self) -> str:
        return self.topic_filter.removesuffix("/#")

    @property
    def path(self) -> str:
        return f"{QUEUES}/{quote(self.name, safe='')}"

    def topic(self, rest: str = "x") -> str:
        """A topic which the filter matches."""
        return f"{self.root}/{rest}"


class MqRest(Rest):
    """`/api/v5` of one broker, with its key."""

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        if body is None:
            return self.fetch(f"/api/v5/{path}", method=method)
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return self.fetch(f"/api/v5/{path}", method=method, headers=headers, body=data)

    def create(self, topic_filter: str, **settings: Any) -> Queue:
        answer = self.call("POST", QUEUES, {"topic_filter": topic_filter, **settings})
        assert answer.status == 200, answer.body
        return Queue(answer.json["name"], topic_filter)

    def update(self, queue: Queue, **settings: Any) -> Any:
        answer = self.call("PUT", queue.path, settings)
        assert answer.status == 200, answer.body
        return answer.json

    def delete(self, queue: Queue) -> None:
        answer = self.call("DELETE", queue.path)
        assert answer.status == 204, answer.body

    def exists(self, queue: Queue) -> bool:
        return self.call("GET", queue.path).status == 200

    def configure(self, **settings: Any) -> None:
        answer = self.call("PUT", CONFIG, settings)
        assert answer.status == 204, answer.body

    def config(self) -> Any:
        answer = self.call("GET", CONFIG)
        assert answer.status == 200, answer.body
        return answer.json

    def names(self) -> list[str]:
        answer = self.call("GET", f"{QUEUES}?limit=10000")
        assert answer.status == 200, answer.body
        return [one["name"] for one in answer.json["data"]]

    def metric(self, name: str, queue: Queue) -> float:
        """What `/metrics` says of this queue."""
        return self.samples()[f"queuelake_mq_{name}", queue.name]

    def wait_for_depth(self, queue: Queue, depth_max: int) -> None:
        wait_until(lambda: self.metric("messages", queue) <= depth_max)


def assert_error(answer: Answer, status: int, code: str, text: str = "") -> None:
    """An error body has a code and a message, which holds this text."""
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert answer.json["message"], answer.body
    assert text in answer.json["message"], answer.body
