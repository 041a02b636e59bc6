"""`queuelake sub`: print what arrives; a message is acknowledged after it was printed.

One thread runs paho's loop, so a message is never taken from the broker and then lost between two
threads. A lost connection is opened again with a growing pause; the first one must succeed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuelake.cli import connect
from queuelake.cli.connect import ClientError

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.properties import Properties

RECONNECT_PAUSE_S_MAX = 30.0
LOOP_S = 0.5
LEAVE_S_MAX = 2.0
DISCARD_BYTES = 65536

EPILOG = """
Examples:

  queuelake sub -t 'sensors/#' -v                  topic and payload
  queuelake sub -t 'sensors/#' -C 10 --json        ten messages as JSON, then end
  queuelake sub -t a -t 'b/+' -q 1                 several filters
  queuelake sub -t a -q 1 -c -i my-worker          keep the session: nothing is missed
  queuelake sub -t '$share/workers/jobs' -q 1      share the work with others
  queuelake sub -t '$SYS/#' -v                     figures of the broker

Ends with Ctrl-C, after --count messages, or -W seconds after it has subscribed (with exit code
1 when --count was not reached).
"""

Topics = Annotated[list[str], typer.Option("--topic", "-t", help="Topic filter; repeatable.")]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.")]
Count = Annotated[
    int | None, typer.Option("--count", "-C", min=1, help="End after so many messages.")
]
Wait = Annotated[
    float | None, typer.Option("--wait", "-W", min=0, help="End after so many seconds.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object for each message.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Topic before the payload.")]
Keep = Annotated[
    bool, typer.Option("--keep-session", "-c", help="Keep the session at the broker; needs --id.")
]
SessionExpiry = Annotated[
    int,
    typer.Option(
        "--session-expiry", min=0, max=0xFFFFFFFF, help="How long it is kept, in seconds (MQTT 5)."
    ),
]
NoRetained = Annotated[
    bool, typer.Option("--no-retained", "-R", help="Do not print retained messages.")
]
NoLocal = Annotated[bool, typer.Option("--no-local", help="Not what this client sent (MQTT 5).")]
AsPublished = Annotated[
    bool, typer.Option("--retain-as-published", help="Show the flag as it was sent (MQTT 5).")
]
UserProperties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="User property of SUBSCRIBE (MQTT 5)."),
]


@connect.connects
def subscribe(
    target: connect.Target,
    topics: Topics,
    qos: Qos = 0,
    count: Count = None,
    wait: Wait = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    keep: Keep = False,
    session_expiry: SessionExpiry = 0xFFFFFFFF,
    no_retained: NoRetained = False,
    no_local: NoLocal = False,
    as_published: AsPublished = False,
    user_property: UserProperties = None,
) -> None:
    """Subscribe and print messages, one line each."""
    parameters = dict(locals())
    if keep and not target.client_id:
        raise typer.BadParameter("--keep-session needs --id: the session belongs to a client id")
    if target.version == "4" and (no_local or as_published or user_property):
        raise typer.BadParameter("MQTT 3.1.1 has no subscription options or properties; use -V 5")
    _check_filters(topics)
    reached = _Subscriber(target, parameters).run()
    if count is not None and not reached:
        raise typer.Exit(1)


def _check_filters(topics: list[str]) -> None:
    from queuelake.config_rules import filter_mistake

    for topic in topics:
        mistake = filter_mistake(topic)
        if mistake:
            raise typer.BadParameter(f"{topic!r}: {mistake}", param_hint="--topic")


class _Subscriber:
    def __init__(self, target: connect.Target, parameters: dict[str, Any]) -> None:
        self._target = target
        self._parameters = parameters
        self._clean = not parameters["keep"]
        self._left: int | None = parameters["count"]
        self._failure: str | None = None
        self._subscribed = False
        self._done = False
        self._end = math.inf  # known once the subscription stands
        self._client = connect.make_client(target, clean=self._clean, manual_ack=True)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_disconnect = self._on_disconnect

    def run(self) -> bool:
        """Print until the count or the time ends it; True when the count was reached."""
        self._connect()
        deadline = time.monotonic() + self._target.timeout_s
        while not self._done and time.monotonic() < self._end:
            with interrupts_later():
                wait_s = min(LOOP_S, max(0.0, self._end - time.monotonic()))
                lost = self._client.loop(wait_s) != 0
            if self._failure is not None:
                raise ClientError(f"{self._target.address}: {self._failure}")
            if self._subscribed:
                deadline = time.monotonic() + self._target.timeout_s
                if lost and not self._done:
                    self._reconnect()
            elif lost or time.monotonic() > deadline:
                seconds = f"{self._target.timeout_s:g} s"
                why = "connection lost before SUBACK" if lost else f"no SUBACK within {seconds}"
                raise ClientError(f"{self._target.address}: {why}")
        self._leave()
        return self._done

    def _leave(self) -> None:
        """Send DISCONNECT and let the broker close first.

        Closing with unread messages would make the kernel reset the connection, and the broker
        could lose the acknowledgements that are on their way to it.
        """
        wire = self._client.socket()
        if wire is None:
            return
        with socket.socket(fileno=os.dup(wire.fileno())) as kept:  # paho closes only its own
            self._client.disconnect()
            while self._client.want_write() and self._client.loop_write() == 0:
                pass
            kept.settimeout(LEAVE_S_MAX)
            with contextlib.suppress(OSError):
                kept.shutdown(socket.SHUT_WR)
                deadline = time.monotonic() + LEAVE_S_MAX
                while time.monotonic() < deadline and kept.recv(DISCARD_BYTES):
                    pass

    def _connect(self) -> None:
        connect.open_connection(
            self._client, self._target, clean=self._clean, properties=self._connect_properties()
        )

    def _reconnect(self) -> None:
        pause_s = 1.0
        while True:
            print(f"warning: connection lost, again in {pause_s:g} s", file=sys.stderr)
            time.sleep(pause_s)
            try:
                self._connect()
            except ClientError:
                pause_s = min(2 * pause_s, RECONNECT_PAUSE_S_MAX)
            else:
                self._subscribed = False
                return

    def _connect_properties(self) -> Properties | None:
        from paho.mqtt.packettypes import PacketTypes

        if self._clean or self._target.version == "4":
            return None
        values = {
            "SessionExpiryInterval": self._parameters["session_expiry"],
            # This process forgets what it has received but not printed. With one message on its
            # way at a time, a QoS 2 message that was not printed is still the broker's.
            "ReceiveMaximum": 1 if self._parameters["qos"] == 2 else None,
        }
        return connect.make_properties(PacketTypes.CONNECT, values)

    def _on_connect(self, client: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.subscribeoptions import SubscribeOptions

        if reason.is_failure:
            self._failure = f"connection refused: {reason}"
            return
        topics, qos = self._parameters["topics"], self._parameters["qos"]
        try:
            if self._target.version == "4":
                client.subscribe([(topic, qos) for topic in topics])
                return
            options = SubscribeOptions(
                qos=qos,
                noLocal=self._parameters["no_local"],
                retainAsPublished=self._parameters["as_published"],
                retainHandling=2 if self._parameters["no_retained"] else 0,
            )
            pairs = connect.user_properties(self._parameters["user_property"]) or None
            properties = connect.make_properties(PacketTypes.SUBSCRIBE, {"UserProperty": pairs})
            client.subscribe([(topic, options) for topic in topics], properties=properties)
        except ValueError as error:
            self._failure = f"--topic {', '.join(topics)}: {error}"

    def _on_subscribe(self, _c: Any, _u: Any, _mid: int, reasons: Any, _p: Any) -> None:
        wait = self._parameters["wait"]
        if wait is not None and self._end == math.inf:
            self._end = time.monotonic() + wait
        self._subscribed = True
        for topic, reason in zip(self._parameters["topics"], reasons, strict=False):
            if reason.is_failure:
                self._failure = f"subscription to {topic!r} refused: {reason}"

    def _on_message(self, client: Any, _u: Any, message: MQTTMessage) -> None:
        if self._done:
            return  # not printed, so not acknowledged: the broker keeps it for the session
        if not (self._parameters["no_retained"] and message.retain):
            write_message(message, self._parameters["as_json"], self._parameters["verbose"])
            if self._left is not None:
                self._left -= 1
                self._done = self._left == 0
        client.ack(message.mid, message.qos)

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        if reason.is_failure and not self._subscribed and self._failure is None:
            self._failure = f"connection lost: {reason}"


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Ctrl-C is raised behind this, or when it comes twice: in the midst of paho it might leave a
    lock taken, for which the end of the process would wait."""
    came = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    former = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if came:
        raise KeyboardInterrupt


def write_message(message: MQTTMessage, as_json: bool, verbose: bool) -> None:
    """Write one message to standard output, at once."""
    output = sys.stdout.buffer
    if as_json:
        output.write(json.dumps(message_fields(message), ensure_ascii=False).encode() + b"\n")
    else:
        if verbose:
            output.write(message.topic.encode() + b" ")
        output.write(message.payload + b"\n")
    output.flush()


def message_fields(message: MQTTMessage) -> dict[str, object]:
    """What `--json` shows; a payload that is no text comes as base64."""
    fields: dict[str, object] = {
        "topic": message.topic,
        "qos": message.qos,
        "retain": bool(message.retain),
        "dup": bool(message.dup),
    }
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    properties: Any = message.properties
    if properties is not None and not properties.isEmpty():
        fields["properties"] = properties.json()
    return fields
