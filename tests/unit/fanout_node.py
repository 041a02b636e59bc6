"""Vehicle fan-out on a simulated broker, where a week passes at once."""

from __future__ import annotations

import json
from typing import Any

from queuelake.broker.fanout.service import Fanout
from queuelake.engine.kinds.fanout import Row
from queuelake.sdv_settings import SdvConfig
from queuelake.settings import Settings
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from queuelake.storage.check import problems
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.simulation.node import Node, Peer

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PREFIX = "agent/{VIN}/proxy/request"


class FanoutNode(Node):
    """Everything is done when a method returns."""

    def __init__(self, **sdv: Any) -> None:
        self.prefix = str(sdv.get("topic_prefix", PREFIX))
        super().__init__(Settings(sdv=SdvConfig(**sdv)))
        self._packet_id = 0
        self._platform: Peer | None = None

    @property
    def fanout(self) -> Fanout:
        return self.broker.fanout

    # The platform

    def platform(self) -> Peer:
        if self._platform is None or self._platform.transport.closed_by_broker():
            self._platform = self.client("platform", clean=True)
        return self._platform

    def crash(self) -> None:
        super().crash()
        self._platform = None

    def next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    def data(self, data_id: str, payload: bytes) -> None:
        assert self.ask(f"data/{data_id}", payload) == 0

    def trigger(self, vins: list[str], request_id: str, data_id: str) -> None:
        assert self.ask("trigger", trigger_json(vins, request_id, data_id)) == 0

    def ask(self, topic: str, payload: bytes) -> int:
        """The reason code of the PUBACK."""
        platform = self.platform()
        platform.publish(f"$SDV-FANOUT/{topic}", payload, 1, self.next_id())
        self.work()
        answer = platform.take()
        assert answer.type == p.PUBACK
        return answer.reason_code

    # Vehicles

    def vehicle(self, vin: str, **fields: Any) -> Peer:
        """One which is connected and subscribed."""
        peer = self.client(vin, **fields)
        if not peer.session_present:
            self.subscribe(peer)
        return peer

    def subscribe(self, peer: Peer, qos: int = 1) -> None:
        topic_filter = self.prefix.replace("{VIN}", peer.client_id) + "/+"
        packet = p.subscribe(999, [(topic_filter, qos)], version=peer.version)
        peer.transport.send(packet)
        self.work()
        assert peer.take().type == p.SUBACK

    def beat(self, peer: Peer, name: str = "heartbeat", vin: str = "") -> None:
        peer.publish(f"ecp/{vin or peer.client_id}/{name}", b"", 0, 0)
        self.work()

    def take(self, peer: Peer) -> list[Packet]:
        return [one for one in peer.take_all() if one.type == p.PUBLISH]

    def requests(self, peer: Peer) -> list[str]:
        """The requests of what has come, which stays unacknowledged."""
        return [one.topic.rpartition("/")[2] for one in self.take(peer)]

    def acknowledge(self, peer: Peer, packet: Packet, reason: int = 0) -> None:
        peer.transport.send(p.acknowledge(p.PUBACK, packet.packet_id, reason or None))
        self.work()

    def drain(self, peer: Peer) -> list[tuple[str, bytes]]:
        """What comes until nothing more comes, each acknowledged; never two at once."""
        found: list[tuple[str, bytes]] = []
        while packets := self.take(peer):
            (packet,) = packets
            found.append((packet.topic.rpartition("/")[2], packet.payload))
            self.acknowledge(peer, packet)
        return found

    # What is there

    def pending(self, vin: str) -> list[str]:
        return [row.request_id for row in self.fanout.inspect(vin).pending]

    def rows(self) -> int:
        """In the store, whether they count or not."""
        bundles = [t.read_bundle(value) for value in self._bundles().values()]
        return len(self.store.tables[api.SDV_IDS]) + sum(len(names) for _, _, names in bundles)

    def _bundles(self) -> dict[bytes, bytes]:
        table = self.store.tables[api.SDV_RECENT]
        return {key: value for key, value in table.items() if key.startswith(t.BUNDLES)}

    def recent_rows(self) -> list[Row]:
        """Those of the store which have not moved to all others yet."""
        found: list[Row] = []
        for key, value in self._bundles().items():
            request_id, data_id, names = t.read_bundle(value)
            ended = self.store.tables[api.SDV_RECENT].get(t.ended_key(key), b"")
            bits = int.from_bytes(ended, "little")
            ts_ms = t.bundle_time(key)
            for at, name in enumerate(names):
                if not bits >> at & 1 and ts_ms not in self.fanout.register.hidden:
                    row_key = t.row_key(t.name_digest(name), ts_ms, t.digest(request_id))
                    found.append(t.read_row(row_key, t.row_value_head(request_id, data_id) + name))
        return found

    def leap(self, milliseconds: int) -> None:
        """Much time passes; the broker looks up at the end of it, and collects garbage."""
        self.loop.now_ns += milliseconds * 1_000_000
        for _ in range(20):
            self.pass_time(250)

    def check(self) -> None:
        """The counts are those of the rows."""
        self.work()
        tables = self.store.tables
        with self.store.view() as view:
            assert problems(view, 10_000) == []
            totals = t.read_totals(view)
        hidden = self.fanout.register.hidden
        rows = [
            t.read_row(key, value)
            for key, value in tables[api.SDV_IDS].items()
            if t.row_time(key) not in hidden
        ]
        rows += self.recent_rows()
        assert totals.pending == len(rows) == self.fanout.status().remaining_messages
        assert totals.index_bytes == sum(row.size for row in rows)
        assert totals.payloads == len(tables[api.SDV_DATA])
        sizes = [len(key) + len(value) for key, value in tables[api.SDV_DATA].items()]
        assert totals.payload_bytes == sum(sizes)
        sizes = [len(key) + len(value) for key, value in tables[api.SDV_META].items()]
        assert totals.meta_bytes == sum(sizes)
        for key, value in tables[api.SDV_REQUESTS].items():
            progress = t.read_progress(value)
            assert progress.pending == len([row for row in rows if row.key[24:] == key])
            assert progress.triggered == progress.pending + sum(progress.outcomes)
        references = {row.data_id for row in rows}
        assert set(tables[api.SDV_REFERENCES]) == {t.digest(one) for one in references}
        for key, value in tables[api.SDV_REFERENCES].items():
            count = len([row for row in rows if t.digest(row.data_id) == key])
            assert int.from_bytes(value, "big") == count


def trigger_json(vins: list[str], request_id: str, data_id: str) -> bytes:
    return json.dumps({"ids": vins, "request_id": request_id, "data_id": data_id}).encode()
