"""Settings of a cluster: the `[cluster]` section. The rules about it are in `cluster_rules.py`."""

import re
import socket
from typing import Annotated, Final

from msgspec import Meta, field

from queuelake.config_types import PositiveDuration, PositiveSize, Section, parse_duration
from queuelake.placing import Placing

NAME_CHARACTERS_MAX: Final = 64
SHARDS_MAX: Final = 64


class ClusterConfig(Section, frozen=True):
    """This node as one of several, with NATS JetStream between them; needs the extra `cluster`."""

    enabled: bool = False
    name: str = "queuelake"
    node: str = ""  # empty: the name of the host
    urls: list[str] = field(default_factory=lambda: ["nats://127.0.0.1:4222"])
    user: str = ""
    password: str = ""
    token: str = ""
    credentials_file: str = ""
    nkey_seed_file: str = ""
    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] = 1
    replicas: Annotated[int, Meta(ge=1, le=5)] = 3
    lease: PositiveDuration = "5s"
    log_bytes_max: PositiveSize = 4 * 1024**3

    @property
    def node_name(self) -> str:
        """How the other nodes call this one; no dots, which would split it in a subject."""
        if self.node:
            return self.node
        host = re.sub("[^A-Za-z0-9_-]", "-", socket.gethostname())[:NAME_CHARACTERS_MAX]
        return host or "node"

    @property
    def shard_count(self) -> int:
        """How many brokers share the work; a broker which is alone has all of it."""
        return self.shards if self.enabled else 1

    @property
    def placing(self) -> Placing | None:
        """Of queues; None: there is one place for all of them."""
        return Placing(self.shard_count) if self.shard_count > 1 else None

    @property
    def lease_ms(self) -> int:
        return parse_duration(self.lease)
