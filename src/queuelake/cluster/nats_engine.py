"""The engine of a cluster on NATS JetStream: logs and leases in streams, messages over subjects.

engine = await NatsEngine.connect(settings.cluster)
log = await engine.log(0)
position = await log.append([b"first"], after=0)
"""

from __future__ import annotations

from collections.abc import Callable

from queuelake.cluster import nats_streams
from queuelake.cluster.engine import Leases, Log, Messenger
from queuelake.cluster.nats_link import Link, NoAnswerError
from queuelake.cluster.nats_log import NatsLeases, NatsLog
from queuelake.cluster.nats_messenger import NatsMessenger
from queuelake.cluster_settings import ClusterConfig
from queuelake.errors import ConfigError


class NatsEngine:
    """What `engine.py` asks for, over one connection to NATS that comes back by itself."""

    def __init__(self, config: ClusterConfig, link: Link) -> None:
        self._messenger = NatsMessenger(link, config.name, config.node_name)
        self._config = config
        self._link = link

    @classmethod
    async def connect(cls, config: ClusterConfig) -> NatsEngine:
        """Connect, for as long as it takes, and be known to the other nodes.

        Raises:
            ConfigError: NATS does not want us, or another node has our name.
        """
        engine = cls(config, await Link.connect(config))
        messenger = engine._messenger
        try:
            await messenger.ping(config.node_name)
        except NoAnswerError:
            await messenger.start()
            if await messenger.claim_name():
                return engine
        await engine.close()
        raise ConfigError([f'cluster.node = "{config.node_name}": another node has this name'])

    @property
    def messenger(self) -> Messenger:
        return self._messenger

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def on_connection(self) -> Callable[[bool], None]:
        """Called with False when the connection is lost, with True when there is one again."""
        return self._link.on_connection

    @on_connection.setter
    def on_connection(self, callback: Callable[[bool], None]) -> None:
        self._link.on_connection = callback

    async def log(self, shard: int) -> Log:
        """The log of a shard, made if need be.

        Raises:
            ConfigError: there is one which cannot be used with these settings.
            UnavailableError: JetStream cannot say or do it now; try again.
        """
        wanted = nats_streams.log_stream(self._config, shard)
        state = await nats_streams.ensure_stream(self._link, wanted)
        return NatsLog(self._link, wanted["name"], wanted["subjects"][0], state)

    async def leases(self, shard: int) -> Leases:
        """The ownership record of a shard; the bucket is made if need be.

        Raises: as `log()`.
        """
        await nats_streams.ensure_stream(self._link, nats_streams.record_stream(self._config))
        return NatsLeases(self._link, nats_streams.bucket(self._config), shard)

    async def close(self) -> None:
        await self._link.close()
