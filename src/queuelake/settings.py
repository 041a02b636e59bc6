"""Typed settings: every limit of the product, with its default, its bounds and its unit.

Three layers, the later wins: a TOML file, `QUEUELAKE__SECTION__KEY` in the environment, `--set
section.key=value`. `load_settings` checks all of them and reports every mistake, not the first; how
it does that is in `config.py`, which is imported only when something is loaded.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, cast

import msgspec
from msgspec import Meta, field

from queuelake import names
from queuelake.cluster_settings import ClusterConfig
from queuelake.config_types import (
    U16,
    Count,
    Duration,
    Port,
    Positive,
    PositiveDuration,
    PositiveSize,
    Section,
    Size,
)
from queuelake.ecq_settings import EcqConfig
from queuelake.mq_settings import MqConfig
from queuelake.queue_settings import QueueSettings
from queuelake.sdv_settings import SdvConfig

SECRET_KEYS: Final = frozenset({"password", "secret", "token"})


class Listener(Section, frozen=True):
    """Where one kind of client connects. Port 0 picks a free one; -1 cannot be, use `enabled`."""

    enabled: bool = True
    bind: str = "127.0.0.1"
    port: Port = 1883


class UnixListener(Section, frozen=True):
    """A Unix socket for clients on this machine; an empty path turns it off."""

    path: str = ""
    mode: str = "0660"


class Listeners(Section, frozen=True):
    mqtt: Listener = field(default_factory=lambda: Listener(port=1883))
    mqtts: Listener = field(default_factory=lambda: Listener(port=8883))
    ws: Listener = field(default_factory=lambda: Listener(port=8083))
    wss: Listener = field(default_factory=lambda: Listener(port=8084))
    unix: UnixListener = UnixListener()


class Tls(Section, frozen=True):
    """Certificates of `mqtts` and `wss`; without a certificate both are off."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_certificate: Literal["none", "optional", "required"] = "none"
    username_from: Literal["none", "cn", "subject"] = "cn"


class Mqtt(Section, frozen=True):
    """What this server announces in CONNACK, and how long it waits."""

    packet_size_bytes_max: Annotated[int, Meta(ge=1024, le=268_369_920)] = 10 * 1024 * 1024
    receive_max: U16 = 1024
    topic_alias_max: Annotated[int, Meta(ge=0, le=65535)] = 64
    inflight_max: U16 = 1024
    keepalive_s_max: Annotated[int, Meta(ge=0, le=65535)] = 0
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    session_expiry_s_max: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)] = 0xFFFFFFFF
    session_expiry_s_v311: Annotated[int, Meta(ge=0, le=0xFFFFFFFF)] = 0xFFFFFFFF
    retain_available: bool = True
    wildcard_available: bool = True
    shared_available: bool = True
    qos_max: Annotated[int, Meta(ge=0, le=2)] = 2
    topic_levels_max: Annotated[int, Meta(ge=1, le=65535)] = 128
    response_information: str = ""


class Limits(Section, frozen=True):
    """What one client, and all of them together, may use. 0 means: no limit."""

    connections_max: Count = 100_000
    connections_per_ip_max: Count = 0
    connect_rate_per_s_max: Count = 0
    publish_rate_per_s_max: Count = 0
    publish_bytes_per_s_max: Count = 0
    subscriptions_per_client_max: Count = 10_000
    queued_messages_per_client_max: Positive = 1_000_000
    queued_bytes_per_client_max: Positive = 1024 * 1024 * 1024
    memory_bytes_per_client_max: Positive = 4 * 1024 * 1024
    write_buffer_bytes_max: Positive = 256 * 1024
    unconfirmed_bytes_per_client_max: Positive = 4 * 1024 * 1024
    retained_messages_max: Count = 1_000_000
    route_cache_entries_max: Positive = 100_000


class Jwt(Section, frozen=True):
    """A JSON Web Token in the password field of CONNECT; off without a secret or a key file."""

    secret: str = ""
    public_key_file: str = ""
    jwks_file: str = ""
    algorithms: list[str] = field(default_factory=lambda: ["HS256", "RS256", "ES256"])
    audience: str = ""
    issuer: str = ""
    username_claim: str = "sub"
    acl_claim: str = "acl"


class Auth(Section, frozen=True):
    """Who may connect. Without users, only loopback clients, anonymously."""

    allow_anonymous: bool | None = None
    password_file: str = ""
    scram_file: str = ""
    platform_users: list[str] = []
    jwt: Jwt = field(default_factory=Jwt)
    failed_logins_max: Count = 10
    failed_logins_ban_s: Annotated[float, Meta(ge=0)] = 60.0


class AclRule(Section, frozen=True):
    """One rule; the first whose matchers and topic fit decides."""

    permission: Literal["allow", "deny"]
    topics: list[str]
    action: Literal["publish", "subscribe", "all"] = "all"
    clientid: str = ""
    clientid_re: str = ""
    username: str = ""
    username_re: str = ""
    ip: str = ""
    platform: bool | None = None


class Ban(Section, frozen=True):
    """Clients which are refused at CONNECT."""

    clientid: str = ""
    username: str = ""
    ip: str = ""


class Http(Section, frozen=True):
    """The admin process: REST, metrics, health."""

    enabled: bool = True
    bind: str = "127.0.0.1"
    port: Port = 18083


class Console(Section, frozen=True):
    """The console in the admin process, with the extra `console`."""

    enabled: bool = True
    idle_timeout: PositiveDuration = "1h"  # a session nobody uses ends then


class Grpc(Section, frozen=True):
    """gRPC of the admin process, with the extra `grpc`; TLS with both files."""

    enabled: bool = True
    bind: str = "127.0.0.1"
    port: Port = 18084
    certificate: str = ""
    key: str = ""


class Flight(Section, frozen=True):
    """The export process: Arrow Flight for Spark, with the extra `spark`; TLS with both files."""

    enabled: bool = True
    bind: str = "127.0.0.1"
    port: Port = 18085
    certificate: str = ""
    key: str = ""


class Lake(Section, frozen=True):
    """Where queues become tables, and how long queues wait for that."""

    path: str = ""  # empty: <data-dir>/lake
    archive_hold_bytes_max: Size = 10 * 1024**3
    hold: Literal["reject", "drop"] = "reject"
    # Events and minutes are kept until they are archived, but never longer or more than this.
    events_age_max: Duration = "7d"
    events_bytes_max: Size = 256 * 1024**2


class Storage(Section, frozen=True):
    durability: Literal["fsync", "buffered"] = "fsync"
    map_size_bytes_initial: Annotated[int, Meta(ge=1024 * 1024)] = 64 * 1024 * 1024
    map_size_bytes_max: Annotated[int, Meta(ge=1024 * 1024)] = 1024 * 1024 * 1024 * 1024
    group_bytes_max: Positive = 8 * 1024 * 1024


class Queues(Section, frozen=True):
    """Durable queues: what all of them share, and what single ones say about themselves."""

    auto_create: bool = True
    queues_max: Positive = 100_000
    groups_per_queue_max: Positive = 1_000
    cache_bytes_max: PositiveSize = 8 * 1024 * 1024
    idle_unload_s: Annotated[float, Meta(gt=0)] = 30.0
    response_ttl_s: Annotated[float, Meta(gt=0)] = 60.0
    defaults: QueueSettings = field(default_factory=QueueSettings)
    # Partial trees by the bare name of the queue; in TOML they are tables of [queues] itself.
    named: dict[str, dict[str, object]] = {}


class Log(Section, frozen=True):
    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Metrics(Section, frozen=True):
    """How much `/metrics` names; what is above it is summed up as `(other)`."""

    queues_max: Annotated[int, Meta(ge=0, le=10_000)] = 1_000
    groups_per_queue_max: Annotated[int, Meta(ge=0, le=1_000)] = 20


class Otel(Section, frozen=True):
    """Traces of messages with a `traceparent`, over OTLP; with the extra `otel`."""

    enabled: bool = False
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service_name: str = "queuelake"


class Sys(Section, frozen=True):
    """The `$SYS/` topics; interval 0 turns them off."""

    interval_s: Annotated[float, Meta(ge=0)] = 10.0


class Settings(Section, frozen=True):
    """The whole configuration, ready to use."""

    data_dir: str = "~/.local/share/queuelake"
    shutdown_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    listeners: Listeners = Listeners()
    tls: Tls = Tls()
    mqtt: Mqtt = Mqtt()
    limits: Limits = Limits()
    auth: Auth = field(default_factory=Auth)
    acl: list[AclRule] = []
    bans: list[Ban] = []
    http: Http = Http()
    console: Console = Console()
    grpc: Grpc = Grpc()
    flight: Flight = Flight()
    lake: Lake = Lake()
    storage: Storage = Storage()
    queues: Queues = field(default_factory=Queues)
    mq: MqConfig = MqConfig()
    ecq: EcqConfig = EcqConfig()
    sdv: SdvConfig = field(default_factory=SdvConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    log: Log = Log()
    metrics: Metrics = Metrics()
    otel: Otel = Otel()
    sys: Sys = Sys()


def load_settings(path: str | None, environ: Mapping[str, str], assignments: list[str]) -> Settings:
    """Read the TOML file, the environment and the `--set` assignments; the later wins.

    Raises:
        ConfigError: one line for each mistake; show them all and stop.
    """
    return load_settings_and_origins(path, environ, assignments)[0]


def load_settings_and_origins(
    path: str | None, environ: Mapping[str, str], assignments: list[str]
) -> tuple[Settings, dict[str, str]]:
    """As `load_settings`, and where each value came from which is no default."""
    from queuelake import config

    return config.load_settings(path, environ, assignments)


def as_table(settings: Settings) -> dict[str, object]:
    """The settings as plain tables, in the words in which a TOML file says them."""
    table = cast(dict[str, object], msgspec.to_builtins(settings))
    queues = cast(dict[str, object], table["queues"])
    named = cast(dict[str, object], queues.pop("named"))
    queues.update({names.address(name): tree for name, tree in named.items()})
    return table


def shown_table(settings: Settings) -> dict[str, object]:
    """As `as_table`, for people: without what is unset, and secrets are not said."""
    return _without_secrets(as_table(settings))


def _without_secrets(table: dict[str, object]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            kept[key] = _without_secrets(value)
        elif value is not None and not (key in SECRET_KEYS and value):
            kept[key] = value
    return kept


def authentication_configured(settings: Settings) -> bool:
    """True when there is something to check a client against: without it everybody is anonymous,
    but for those who show a certificate."""
    auth = settings.auth
    jwt = auth.jwt
    return any(
        (auth.password_file, auth.scram_file, jwt.secret, jwt.public_key_file, jwt.jwks_file)
    )
