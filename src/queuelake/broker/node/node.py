"""A node of a cluster: a member of each shard, and what they share.

With one shard a client's bytes go to the owner as they are, over `Relays`. With several there is a
front, which speaks MQTT with the client and with the owners: see docs/decisions/0020-shards.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

from queuelake.broker.front.fronts import Fronts
from queuelake.broker.front.pair import connect
from queuelake.broker.listener import ClientProtocol
from queuelake.broker.node import forwarding
from queuelake.broker.node.member import Member
from queuelake.broker.node.operations import NodeOperations
from queuelake.broker.node.unserved import last_words
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline import passing
from queuelake.broker.serving import Place
from queuelake.cluster.copying import KIND as STORE
from queuelake.cluster.engine import Log
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.cluster.relay import KIND as CLIENT
from queuelake.cluster.relay import Relays
from queuelake.cluster.tunnels import Tunnels
from queuelake.control_pipeline import COMMIT_STAGE
from queuelake.errors import BrokerDownError
from queuelake.placing import Placing

# With several shards a node which begins hears who else does before it owns any: until there was
# nobody new for a while, or it has waited long enough.
LISTEN_S: Final = 2.0
LISTEN_S_MAX: Final = 10.0

T = TypeVar("T")


class Doors(Protocol):
    """Where clients come in: `Relays` or `Fronts`."""

    def owner_changed(self) -> None: ...

    def close(self) -> None: ...


class Node:
    """Make it with `join`."""

    def __init__(self, place: Place, engine: NatsEngine, logs: Sequence[Log]) -> None:
        self.place = place
        self.engine = engine
        self.config = place.settings.cluster
        self.name = self.config.node_name
        self.shards = len(logs)
        self.placing = Placing(self.shards, place.settings.sdv.heartbeat_topics)
        self.started_at_s = time.time()
        self._began_s = self._met_s = time.monotonic()
        self.draining = False
        self.tunnels = Tunnels(
            engine.messenger,
            {
                CLIENT: lambda info: self._meant(info).accept_client(info),
                forwarding.KIND: lambda info: self._meant(info).accept_control(),
                STORE: lambda info: self._meant(info).store_copies.accept(info),
            },
        )
        self.members = [Member(self, shard, shard_log) for shard, shard_log in enumerate(logs)]
        self.operations = NodeOperations(self)
        self._doors: Doors
        self._fronts: Fronts | None = None
        if self.shards == 1:
            relays = Relays(self.tunnels, self.members[0].owner, last_words=last_words)
            self._doors, self._relay = relays, relays.relay
        else:
            self._doors = self._fronts = Fronts(self, place.settings.mqtt)

    def log_name(self, part: str, shard: int) -> str:
        """Lines about one of several shards say which."""
        return f"queuelake.{part}" if self.shards == 1 else f"queuelake.{part}.{shard}"

    def _meant(self, info: Mapping[str, object]) -> Member:
        """The member a tunnel is for."""
        shard = info.get("shard", 0)
        assert isinstance(shard, int)
        return self.members[shard]

    # Beginning and end

    async def start(self) -> None:
        await self.tunnels.start()
        await self.operations.start()
        for member in self.members:
            await member.start()

    async def stop(self) -> None:
        """Leave: what this node owns is handed on first."""
        self.draining = True
        await asyncio.gather(*[member.leave() for member in self.members])
        self._doors.close()
        for member in self.members:
            await member.close()
        self.tunnels.close()
        await self.engine.close()

    def close_stores(self) -> None:
        for member in self.members:
            member.store.close()

    # All stores, whoever owns them

    def reload(self) -> None:
        for member in self.members:
            if member.serving is not None:
                member.serving.reload()

    def sync(self) -> None:
        for member in self.members:
            member.store.sync()

    def free_dead_readers(self) -> None:
        for member in self.members:
            member.free_dead_readers()

    # Who owns what

    def owner(self, shard: int) -> str:
        """The node whose broker serves a shard; empty: nobody knows of one."""
        return self.members[shard].owner()

    def load(self, node: str) -> int:
        """How many shards that node has, or is given now."""
        return [member.heir or member.owner() for member in self.members].count(node)

    def met(self, node: str) -> None:
        """Another node is heard for the first time."""
        self._met_s = time.monotonic()
        self.tunnels.greet(node)

    def has_listened(self) -> bool:
        now_s = time.monotonic()
        has_waited = now_s - self._met_s >= LISTEN_S or now_s - self._began_s >= LISTEN_S_MAX
        return self.shards == 1 or has_waited

    def owner_changed(self) -> None:
        self._doors.owner_changed()

    def lose_tunnels(self, shard: int, former: str) -> None:
        """To one which was the owner: those of the shards it still owns stay."""
        if self.shards == 1:
            self.tunnels.lose(former, f"node {former} is not the owner any more")
        else:
            words = f"node {former} does not own shard {shard} any more"
            self.tunnels.lose_shard(former, shard, words)

    # Clients and operations

    def protocol(self, listener: str) -> ClientProtocol:
        """For a client which has just connected to this node."""
        if self._fronts is not None:
            return self._fronts.front(listener)
        serving = self.members[0].serving
        return self._relay(listener) if serving is None else serving.protocol(listener)

    def clients_here(self) -> int:
        """How many are connected to this node; with one shard its owner counts all there are."""
        return len(self._fronts.all) if self._fronts is not None else 0

    def open(
        self, shard: int, info: dict[str, object], protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """A client's connection to the broker of a shard, wherever that is.

        Raises:
            BrokerDownError: the shard has no owner.
        """
        info = info | {"shard": shard}
        connection = self.members[shard].accept_client(info)
        if connection is not None:
            return connect(protocol, connection, info)
        owner = self.owner(shard)
        if owner in ("", self.name):
            raise BrokerDownError(f"shard {shard} has no owner at the moment; try again")
        return self.tunnels.open(owner, CLIENT, info, protocol)

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T:
        """An operation done by the broker of a shard, wherever it is."""
        return await self.members[shard].ask(name, args, kind)

    def table(self, own: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """All operations, wherever they are done; `own` are those of this process."""
        own = {**own, **self.operations.table()}
        if self.shards == 1:
            member = self.members[0]
            return forwarding.Table(own, member.owners_table, member.forwarding)
        from queuelake.broker.node.spreading import Spread

        return Spread({**own, COMMIT_STAGE: self._commit_stage}, self)

    async def _commit_stage(self, args: dict[str, object]) -> object:
        return await passing.commit_stage(self, self.place.data_dir, args)
