"""`queuelake pub`: send messages and wait until the broker has acknowledged every one.

paho's network thread runs beside the one that reads the messages, so that a slow standard input
never starves the keep-alive. The two meet in `_Outcome`; at most `UNACKNOWLEDGED_MAX` messages are
on the way, however long the input is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuelake.cli import connect
from queuelake.cli.connect import ClientError

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties

UNACKNOWLEDGED_MAX = 1000

EPILOG = """
Examples:

  queuelake pub -t sensors/1 -m 21.5
  queuelake pub -t sensors/1 -m 21.5 -q 1 -r       acknowledged and retained
  queuelake pub -t sensors/1 -n -r                 clear the retained message
  queuelake pub -t photos/1 -f photo.jpg -q 1      a file as one message
  seq 100 | queuelake pub -t numbers -l -q 1       one message for each line
  queuelake pub -t a -m x --property trace=42 --expiry 60

With QoS 1 and 2 it ends with 0 only when the broker acknowledged every message.
"""

Topic = Annotated[str, typer.Option("--topic", "-t", help="Topic to publish to.")]
Message = Annotated[str | None, typer.Option("--message", "-m", help="The payload, as text.")]
File = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="The payload is this file.")
]
Stdin = Annotated[bool, typer.Option("--stdin-file", "-s", help="The payload is standard input.")]
Lines = Annotated[
    bool, typer.Option("--stdin-line", "-l", help="Each line of standard input is a message.")
]
Empty = Annotated[bool, typer.Option("--null-message", "-n", help="An empty payload.")]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.")]
Retain = Annotated[bool, typer.Option("--retain", "-r", help="Retain the message.")]
UserProperties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="User property (MQTT 5), repeatable."),
]
Expiry = Annotated[
    int | None, typer.Option("--expiry", min=1, help="Seconds until the message expires (MQTT 5).")
]
ContentType = Annotated[str | None, typer.Option("--content-type", help="As MQTT 5 has it.")]
ResponseTopic = Annotated[str | None, typer.Option("--response-topic", help="As MQTT 5 has it.")]
Correlation = Annotated[str | None, typer.Option("--correlation-data", help="As MQTT 5 has it.")]


@connect.connects
def publish(
    target: connect.Target,
    topic: Topic,
    message: Message = None,
    file: File = None,
    stdin: Stdin = False,
    lines: Lines = False,
    empty: Empty = False,
    qos: Qos = 0,
    retain: Retain = False,
    user_property: UserProperties = None,
    expiry: Expiry = None,
    content_type: ContentType = None,
    response_topic: ResponseTopic = None,
    correlation: Correlation = None,
) -> None:
    """Publish one message, or one for each line of standard input."""
    properties = _properties(dict(locals()), target.version)
    payloads = _payloads(message, file, stdin, lines, empty)
    client = connect.make_client(target, clean=True)
    outcome = _Outcome(client, target)
    outcome.start()
    try:
        for payload in payloads:
            outcome.publish(topic, payload, qos, retain, properties)
        outcome.wait_all()
    finally:
        client.disconnect()
        client.loop_stop()


class _Outcome:
    """What the network thread has learned, for the thread that publishes."""

    def __init__(self, client: Client, target: connect.Target) -> None:
        self._client = client
        self._target = target
        self._changed = threading.Condition()
        self._connected = False
        self._failure: str | None = None
        self._unacknowledged: set[int] = set()
        # An answer can arrive before publish() has returned the packet id it belongs to.
        self._early: set[int] = set()
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.on_disconnect = self._on_disconnect

    def start(self) -> None:
        connect.open_connection(self._client, self._target, clean=True)
        self._client.loop_start()
        self._wait(lambda: self._connected, "CONNACK")

    def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None
    ) -> None:
        self._wait(lambda: len(self._unacknowledged) < UNACKNOWLEDGED_MAX, "acknowledgements")
        try:
            info = self._client.publish(topic, payload, qos, retain, properties)
        except ValueError as error:
            raise typer.BadParameter(f"--topic {topic!r}: {error}") from error
        with self._changed:
            if info.mid in self._early:
                self._early.discard(info.mid)
            else:
                self._unacknowledged.add(info.mid)

    def wait_all(self) -> None:
        self._wait(lambda: not self._unacknowledged, "acknowledgements")

    def _wait(self, reached: Any, what: str) -> None:
        deadline = time.monotonic() + self._target.timeout_s
        with self._changed:
            while self._failure is None and not reached():
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    seconds = f"{self._target.timeout_s:g} s"
                    raise ClientError(f"{self._target.address}: no {what} within {seconds}")
            if self._failure is not None:
                raise ClientError(f"{self._target.address}: {self._failure}")

    def _fail(self, failure: str) -> None:
        if self._failure is None:
            self._failure = failure

    def _on_connect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._fail(f"connection refused: {reason}")
            self._connected = True
            self._changed.notify_all()

    def _on_publish(self, _c: Any, _u: Any, mid: int, reason: Any, _p: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._fail(f"publish refused: {reason}")
            if mid in self._unacknowledged:
                self._unacknowledged.discard(mid)
            else:
                self._early.add(mid)
            self._changed.notify_all()

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        with self._changed:
            waiting = len(self._unacknowledged)
            self._fail(f"connection lost: {reason}; {waiting} messages not acknowledged")
            self._changed.notify_all()


def _payloads(
    message: str | None, file: str | None, stdin: bool, lines: bool, empty: bool
) -> Iterator[bytes]:
    if sum((message is not None, file is not None, stdin, lines, empty)) != 1:
        raise typer.BadParameter("say what to publish by exactly one of -m, -f, -s, -l or -n")
    if lines:
        return (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    if stdin:
        return iter([sys.stdin.buffer.read()])
    if file is not None:
        with open(file, "rb") as source:
            return iter([source.read()])
    return iter([(message or "").encode()])


def _properties(parameters: dict[str, Any], version: connect.Version) -> Properties | None:
    from paho.mqtt.packettypes import PacketTypes

    correlation = parameters["correlation"]
    values = {
        "UserProperty": connect.user_properties(parameters["user_property"]) or None,
        "MessageExpiryInterval": parameters["expiry"],
        "ContentType": parameters["content_type"],
        "ResponseTopic": parameters["response_topic"],
        "CorrelationData": None if correlation is None else correlation.encode(),
    }
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        return None
    if version == "4":
        raise typer.BadParameter(f"MQTT 3.1.1 has no properties: {', '.join(given)}; use -V 5")
    return connect.make_properties(PacketTypes.PUBLISH, given)
