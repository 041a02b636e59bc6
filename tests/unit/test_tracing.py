"""Spans of traced messages: which there are, whose children, and what becomes of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from queuelake.broker import tracing
from queuelake.broker.tracing import Span, Tracer
from queuelake.queue_settings import Performance, QueueSettings, RetryPolicy
from queuelake.settings import Queues, Settings
from tests.harness import packets as p
from tests.simulation.node import RETRY_MS, Node, Peer

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PUBLISHER = 0xB7AD6B7169203331


def traceparent(span_id: int = PUBLISHER, flags: str = "01", trace_id: int = TRACE) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{flags}"


class Spans:
    """A sink which keeps them."""

    def __init__(self) -> None:
        self.done: list[Span] = []

    def put(self, span: Span) -> None:
        self.done.append(span)

    def counts(self) -> dict[str, int]:
        return {"exported": len(self.done)}

    def said(self) -> list[tuple[str, int, int, str]]:
        """Name, own id, id of the parent, and what happened."""
        return [
            (one.name, one.context.span_id, one.parent_id, one.event.name if one.event else "")
            for one in self.done
        ]


class Traced:
    """A node whose spans have the ids 1, 2, 3..."""

    def __init__(self, sample_ratio: float = 1.0, **defaults: Any) -> None:
        settings = {
            "partitions": 1,
            "retry_policy": RetryPolicy(initial_backoff="100ms"),
        } | defaults
        self.node = Node(Settings(queues=Queues(defaults=QueueSettings(**settings))))
        self.spans = Spans()
        self.trace(sample_ratio)
        self.publisher = self.node.client("publisher")
        self.consumer = self.join("consumer")

    def trace(self, sample_ratio: float = 1.0) -> None:
        ids = itertools.count(len(self.spans.done) + 1)
        self.node.broker.queues.tracer = Tracer(self.spans, sample_ratio, lambda: next(ids))

    def join(self, name: str) -> Peer:
        peer = self.node.client(name)
        properties: p.Properties = {"user_property": [("consumer-group", "workers")]}
        peer.transport.send(p.subscribe(1, [("$queue/tasks", 1)], properties=properties))
        self.node.work()
        assert peer.take().type == p.SUBACK
        return peer

    def publish(self, *pairs: tuple[str, str], payload: bytes = b"x") -> None:
        properties: p.Properties = {"user_property": list(pairs)}
        self.publisher.transport.send(
            p.publish("$queue/tasks", payload, qos=1, packet_id=1, properties=properties)
        )
        self.node.work()
        self.publisher.take_all()

    def receive(self) -> dict[str, str]:
        """The user properties of the next delivery."""
        packet = self.consumer.take()
        assert packet.type == p.PUBLISH
        return dict(packet.user_properties)

    def settle(self, word: str, message_id: str, **user: str) -> None:
        pairs = [("message-id", message_id), *user.items()]
        properties: p.Properties = {"user_property": pairs}
        self.consumer.transport.send(
            p.publish(f"$queue/tasks/${word}", b"", qos=1, packet_id=7, properties=properties)
        )
        self.node.work()
        assert self.consumer.take().reason_code == 0


def test_one_trace_from_publish_over_two_attempts_to_ack() -> None:
    traced = Traced()
    traced.publish(("traceparent", traceparent()), ("tracestate", "vendor=1"), ("colour", "red"))
    first = traced.receive()
    assert first["traceparent"] == traceparent(2)
    assert (first["tracestate"], first["colour"]) == ("vendor=1", "red")
    traced.settle("nack", first["message-id"])
    traced.node.pass_time(RETRY_MS)
    second = traced.receive()
    assert (second["delivery-count"], second["traceparent"]) == ("2", traceparent(3))
    traced.settle("ack", second["message-id"])
    assert traced.spans.said() == [
        ("publish $queue/tasks", 1, PUBLISHER, ""),
        ("deliver $queue/tasks", 2, 1, "nack"),
        ("deliver $queue/tasks", 3, 1, "ack"),
    ]
    assert {one.context.trace_id for one in traced.spans.done} == {TRACE}
    assert {one.context.state for one in traced.spans.done} == {"vendor=1"}
    publish, _, deliver = traced.spans.done
    assert publish.attributes["messaging.client.id"] == "publisher"
    assert deliver.attributes == {
        "messaging.system": "queuelake",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "$queue/tasks",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": "$queue/tasks:0:1",
        "messaging.message.body.size": 1,
        "messaging.consumer.group.name": "workers",
        "messaging.client.id": "consumer",
        "queuelake.attempt": 2,
    }
    assert publish.start_ms <= publish.end_ms <= deliver.start_ms < deliver.end_ms


def test_a_rejected_message_goes_on_as_a_dead_letter_in_its_trace() -> None:
    traced = Traced()
    traced.publish(("traceparent", traceparent()))
    traced.settle("reject", traced.receive()["message-id"], reason="broken")
    publish, *others = traced.spans.said()
    assert publish == ("publish $queue/tasks", 1, PUBLISHER, "")
    assert sorted(others) == [
        ("deliver $queue/tasks", 2, 1, "reject"),
        ("publish $queue/dlq/tasks", 3, 1, ""),
    ]
    [delivery] = [one for one in traced.spans.done if one.name.startswith("deliver")]
    assert delivery.is_failure()
    assert delivery.event is not None
    assert delivery.event.reason == "broken"


def test_a_delivery_which_times_out_and_one_whose_consumer_leaves() -> None:
    traced = Traced(performance=Performance(delivery_timeout="1s"))
    traced.publish(("traceparent", traceparent()))
    traced.receive()
    for _ in range(3):
        traced.node.pass_time(1000)
    assert [one[3] for one in traced.spans.said()][:2] == ["", "timeout"]
    traced.receive()
    traced.consumer.leave()
    traced.node.work()
    assert traced.spans.said()[-1][3] == "returned"


@pytest.mark.parametrize(
    "value",
    [
        traceparent(flags="00"),
        traceparent(trace_id=0),
        traceparent().upper(),
        "00-" + "g" * 52,
        "nonsense",
    ],
)
def test_what_is_not_sampled_travels_on_as_it_is(value: str) -> None:
    traced = Traced()
    traced.publish(("traceparent", value))
    received = traced.receive()
    assert received["traceparent"] == value
    traced.settle("ack", received["message-id"])
    assert not traced.spans.done


def test_the_ratio_chooses_traces_by_their_ids() -> None:
    traced = Traced(sample_ratio=0.5)
    for trace_id in ((1 << 63) - 1, 1 << 63):
        traced.publish(("traceparent", traceparent(trace_id=trace_id)))
    assert [one.context.trace_id for one in traced.spans.done] == [(1 << 63) - 1]


def test_a_message_without_a_trace_has_no_span() -> None:
    traced = Traced()
    traced.publish(("colour", "red"))
    traced.settle("ack", traced.receive()["message-id"])
    assert not traced.spans.done


def test_the_trace_goes_on_after_a_restart() -> None:
    traced = Traced()
    traced.publish(("traceparent", traceparent()))
    traced.receive()
    traced.node.crash()
    traced.trace()
    traced.consumer = traced.node.client("consumer")  # its session has the subscription
    received = traced.receive()
    traced.settle("ack", received["message-id"])
    assert traced.spans.said()[-1][2:] == (1, "ack")


def test_a_publish_which_was_not_stored_is_no_span() -> None:
    traced = Traced()
    traced.node.store.fail_commits = 1
    traced.publish(("traceparent", traceparent()))
    traced.node.pass_time(RETRY_MS)
    assert not traced.spans.done


def test_deliveries_which_are_watched_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "OPEN_MAX", 2)
    traced = Traced()
    for _ in range(3):
        traced.publish(("traceparent", traceparent()))
    assert [name for name, *_, event in traced.spans.said() if not event].count(
        "deliver $queue/tasks"
    ) == 1
    tracer = traced.node.broker.queues.tracer
    assert tracer is not None
    tracer.close()
    assert len(traced.spans.done) == 6


def quorum(**settings: object) -> Traced:
    """One whose queue is a quorum queue."""
    traced = Traced()
    traced.consumer.leave()
    traced.node.broker.queues.delete("tasks")
    traced.node.work()
    traced.node.broker.queues.configure("tasks", {"type": "quorum", **settings})
    traced.node.work()
    traced.consumer = traced.join("worker")
    return traced


def test_a_quorum_queue_traces_what_others_do() -> None:
    traced = quorum()
    traced.publish(("traceparent", traceparent()), ("colour", "red"))
    first = traced.receive()
    assert (first["traceparent"], first["colour"]) == (traceparent(2), "red")
    traced.settle("nack", first["message-id"])
    second = traced.receive()
    assert second["traceparent"] == traceparent(3)
    traced.settle("ack", second["message-id"])
    traced.publish(("traceparent", traceparent()))
    traced.settle("reject", traced.receive()["message-id"], reason="no such article")
    assert traced.spans.said() == [
        ("publish $queue/tasks", 1, PUBLISHER, ""),
        ("deliver $queue/tasks", 2, 1, "nack"),
        ("deliver $queue/tasks", 3, 1, "ack"),
        ("publish $queue/tasks", 4, PUBLISHER, ""),
        ("deliver $queue/tasks", 5, 4, "reject"),
        ("publish $queue/dlq/tasks", 6, 4, ""),
    ]
    rejected = traced.spans.done[4]
    assert rejected.event is not None
    assert rejected.event.reason == "no such article"
    assert rejected.attributes["messaging.client.id"] == "worker"


def test_a_quorum_queue_traces_deliveries_which_nobody_answered() -> None:
    traced = quorum(consumer_timeout="10s", consumer_disconnected_timeout="5s")
    traced.publish(("traceparent", traceparent()))
    traced.receive()
    traced.node.pass_time(11_000)
    assert traced.spans.said()[1:] == [("deliver $queue/tasks", 2, 1, "timeout")]
    traced.consumer = traced.join("another")
    traced.receive()
    traced.consumer.leave()
    traced.node.pass_time(6_000)
    assert traced.spans.said()[2:] == [("deliver $queue/tasks", 3, 1, "returned")]
