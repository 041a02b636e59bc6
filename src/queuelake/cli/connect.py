"""What `pub` and `sub` share: the options of a connection, and a paho client made from them.

The names of the options are those of mosquitto_pub and mosquitto_sub, as far as both have them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from queuelake.cli.options import Values, shared, with_options
from queuelake.errors import QueuelakeError

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties

PASSWORD_VARIABLE = "QUEUELAKE_PASSWORD"
PORT = 1883
PORT_TLS = 8883

Version = Literal["5", "4"]

_PANEL_CONNECTION = "Connection"
_PANEL_TLS = "TLS"
_PANEL_WILL = "Will: what the broker publishes when this client goes away without a word"


def _connection(*names: str, **fields: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL_CONNECTION, **fields)


def _tls(*names: str, **fields: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL_TLS, **fields)


def _will(*names: str, **fields: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL_WILL, **fields)


Host = Annotated[str, _connection("--host", "-h", help="Name or address of the broker.")]
PortOption = Annotated[
    int | None,
    _connection("--port", "-p", min=1, max=65535, help="1883, with TLS 8883.", show_default=False),
]
UnixPath = Annotated[
    str | None,
    _connection("--unix", metavar="PATH", help="A Unix socket, not host and port."),
]
WebSocket = Annotated[
    str | None, _connection("--ws", metavar="PATH", help="Over WebSocket, at this path: /mqtt.")
]
ClientId = Annotated[str, _connection("--id", "-i", help="Client id; empty: the broker makes one.")]
Username = Annotated[str | None, _connection("--username", "-u", help="User name.")]
Password = Annotated[
    str | None,
    _connection(
        "--password", "--pw", "-P", help="Password; ps shows it.", envvar=PASSWORD_VARIABLE
    ),
]
VersionOption = Annotated[
    Version, _connection("--version", "-V", help="MQTT 5.0 (5) or MQTT 3.1.1 (4).")
]
Keepalive = Annotated[
    int, _connection("--keepalive", "-k", min=1, max=65535, help="Keep-alive in seconds.")
]
Timeout = Annotated[
    float, _connection("--timeout", min=0.1, help="Seconds to wait for the broker's answer.")
]
Ca = Annotated[
    str | None, _tls("--cafile", metavar="FILE", help="Certificates to trust; turns TLS on.")
]
Certificate = Annotated[str | None, _tls("--cert", metavar="FILE", help="Own certificate.")]
Key = Annotated[str | None, _tls("--key", metavar="FILE", help="Key of the own certificate.")]
Tls = Annotated[bool, _tls("--tls", help="TLS with the certificates this machine trusts.")]
Insecure = Annotated[bool, _tls("--insecure", help="Do not check the name in the certificate.")]
WillTopic = Annotated[str | None, _will("--will-topic", help="Topic of the will.")]
WillPayload = Annotated[str, _will("--will-payload", help="Payload of the will.")]
WillQos = Annotated[int, _will("--will-qos", min=0, max=2, help="QoS of the will.")]
WillRetain = Annotated[bool, _will("--will-retain", help="Retain the will.")]


class ClientError(QueuelakeError):
    """The broker said no, or nothing: the message has its words."""


class Target(NamedTuple):
    """Where to connect, and as whom."""

    host: str
    port: int | None
    unix: str | None
    ws: str | None
    client_id: str
    username: str | None
    password: str | None
    version: Version
    keepalive_s: int
    timeout_s: float
    cafile: str | None
    cert: str | None
    key: str | None
    tls: bool
    insecure: bool
    will_topic: str | None
    will_payload: str
    will_qos: int
    will_retain: bool

    @property
    def encrypted(self) -> bool:
        return self.tls or self.cafile is not None or self.cert is not None

    @property
    def address(self) -> str:
        if self.unix is not None:
            return self.unix
        return f"{self.host}:{self.port or (PORT_TLS if self.encrypted else PORT)}"


def _connection_options(
    host: Host = "127.0.0.1",
    port: PortOption = None,
    unix: UnixPath = None,
    ws: WebSocket = None,
    client_id: ClientId = "",
    username: Username = None,
    password: Password = None,
    version: VersionOption = "5",
    keepalive_s: Keepalive = 60,
    timeout_s: Timeout = 30.0,
    cafile: Ca = None,
    cert: Certificate = None,
    key: Key = None,
    tls: Tls = False,
    insecure: Insecure = False,
    will_topic: WillTopic = None,
    will_payload: WillPayload = "",
    will_qos: WillQos = 0,
    will_retain: WillRetain = False,
) -> None:
    """The options of whatever connects; those of `Target`, by the same names."""


OPTIONS = shared(_connection_options)


def connects(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first argument is where to connect: the options which
    say so come behind its own."""

    def run(own: Values, where: Values) -> None:
        function(_target(where), **own)

    return with_options(function, OPTIONS, run, leave_out=1)


def _target(options: Values) -> Target:
    target = Target(**options)
    if target.password is not None and target.username is None and target.version == "4":
        if PASSWORD_VARIABLE not in os.environ:
            raise typer.BadParameter("MQTT 3.1.1 allows no password without a user name: add -u")
        return target._replace(password=None)
    return target


def make_client(target: Target, *, clean: bool, manual_ack: bool = False) -> Client:
    """A paho client, set up but not connected."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    transport: Literal["tcp", "websockets", "unix"] = "tcp"
    if target.unix is not None:
        transport = "unix"
    elif target.ws is not None:
        transport = "websockets"
    level = paho.MQTTv5 if target.version == "5" else paho.MQTTv311
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=target.client_id,
        # MQTT 5 says it at CONNECT instead.
        clean_session=clean if level == paho.MQTTv311 else None,
        protocol=level,
        transport=transport,
        reconnect_on_failure=False,
        manual_ack=manual_ack,
    )
    client.connect_timeout = target.timeout_s
    if target.ws is not None:
        client.ws_set_options(path=target.ws)
    if target.username is not None or target.password is not None:
        client.username_pw_set(target.username or "", target.password)
    if target.encrypted:
        client.tls_set(ca_certs=target.cafile, certfile=target.cert, keyfile=target.key)
        client.tls_insecure_set(target.insecure)
    if target.will_topic is not None:
        try:
            client.will_set(
                target.will_topic, target.will_payload, target.will_qos, target.will_retain
            )
        except ValueError as error:
            raise typer.BadParameter(f"--will-topic {target.will_topic!r}: {error}") from error
    return client


def open_connection(
    client: Client, target: Target, *, clean: bool, properties: Properties | None = None
) -> None:
    """Open the network connection and send CONNECT; the answer comes to `on_connect`."""
    from paho.mqtt.client import MQTTv5

    host, _, port = (
        target.address.rpartition(":") if target.unix is None else (target.unix, "", "1")
    )
    try:
        if client.protocol == MQTTv5:
            client.connect(host, int(port), target.keepalive_s, "", 0, clean, properties)
        else:
            client.connect(host, int(port), target.keepalive_s)
    except OSError as error:
        raise ClientError(
            f"cannot connect to {target.address}: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise typer.BadParameter(f"{target.address}: {error}") from error


def make_properties(packet_type: int, values: dict[str, object]) -> Properties:
    """MQTT 5 properties by paho's names; those that are None are left out."""
    from paho.mqtt.properties import Properties

    properties = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def user_properties(pairs: list[str] | None) -> list[tuple[str, str]]:
    """Read `NAME=VALUE`, in order; a name may come several times."""
    properties: list[tuple[str, str]] = []
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--property {pair!r}: write NAME=VALUE")
        properties.append((name, value))
    return properties
