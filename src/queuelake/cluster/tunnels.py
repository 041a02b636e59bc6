"""Tunnels between this node and the others: many connections in one flow of messages to each.

All frames which a turn of the loop produces for a node leave in one message, or as few as the
messenger's limit allows. The tunnels of a node take turns; one which may not send, because nobody
reads at its other end, is not in the line. See `flow` for what becomes of them when something is
lost: `connection_lost` with a ConnectionResetError, for all with that node.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from queuelake.cluster import frames
from queuelake.cluster.engine import Messenger
from queuelake.cluster.flow import Arrival, Flow
from queuelake.cluster.frames import Frame
from queuelake.cluster.tunnel_transport import Tunnel
from queuelake.errors import FrameError

log = logging.getLogger("queuelake.tunnels")

Accept = Callable[[dict[str, object]], asyncio.Protocol | None]

HEARTBEAT_S: Final = 1.0
SILENCE_S_MAX: Final = 5.0
TURN_BYTES: Final = 64 * 1024  # of one tunnel, before the next one has its turn


def subject_of(node: str) -> str:
    """Where the messages for a node go."""
    return f"node.{node}.frames"


class Tunnels:
    """`accept` has, for each kind, what makes a protocol for a tunnel another node opened; it
    returns None to refuse."""

    def __init__(
        self,
        messenger: Messenger,
        accept: Mapping[str, Accept],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        silence_s_max: float = SILENCE_S_MAX,
        life: int = 0,
    ) -> None:
        self.accept = accept
        self.messenger = messenger
        self._life = life or secrets.randbits(63) | 1
        self._heartbeat_s = heartbeat_s
        self._silent_beats_max = max(2, round(silence_s_max / heartbeat_s))
        self._nodes: dict[str, _Node] = {}
        self._beating: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Hear the other nodes."""
        name = self.messenger.node
        assert 0 < len(name.encode()) <= frames.NAME_BYTES_MAX, f"node name {name!r}"
        await self.messenger.receive(subject_of(name), self._receive)
        self._beat_later()

    def open(
        self, node: str, kind: str, info: dict[str, object], protocol: asyncio.Protocol
    ) -> Tunnel:
        """A tunnel to that node; what is written may follow at once. Whether the other side takes
        it is heard as of any connection: by an answer, or by `connection_lost`.

        Raises:
            FrameError: `info` is too large.
        """
        return self._node(node).open(kind, info, protocol)

    def greet(self, node: str) -> None:
        """Say which life of ours this is. Who knew a former one would lose the first tunnel it
        opens to us otherwise, however long ago that was."""
        self._node(node).greet()

    def lose(self, node: str, reason: str) -> None:
        """All tunnels with that node are lost: somebody knows that it is gone."""
        found = self._nodes.get(node)
        if found is not None:
            found.lose(reason)

    def lose_shard(self, node: str, shard: int, reason: str) -> None:
        """What we opened to that node for this shard is lost: it does not serve it any more."""
        found = self._nodes.get(node)
        if found is not None:
            found.lose_shard(shard, reason)

    def count(self, node: str) -> int:
        """How many tunnels there are with that node."""
        found = self._nodes.get(node)
        return 0 if found is None else len(found)

    def close(self) -> None:
        """All tunnels are lost, on both sides."""
        if self._beating is not None:
            self._beating.cancel()
        for node in self._nodes.values():
            node.lose(f"node {self.messenger.node} leaves")
            node.flush()

    def beat(self) -> None:
        """Once in `heartbeat_s`: tell those who wait for us that we are here, miss those whom we
        wait for. Counted in beats, not by a clock: who was stopped himself heard nobody."""
        for node in self._nodes.values():
            node.beat(self._silent_beats_max, self._heartbeat_s)

    def _beat_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._beating = loop.call_later(self._heartbeat_s, self._beat_on)

    def _beat_on(self) -> None:
        self._beat_later()
        self.beat()

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(name, self, self._life)
        return node

    def _receive(self, message: bytes) -> None:
        try:
            head, start = frames.decode_head(message)
            self._node(head.node).receive(head, message, start)
        except FrameError as error:
            log.error("a message between nodes is refused: %s", error)


class _Node:
    """The flow to and from one other node, and the tunnels in it."""

    def __init__(self, name: str, tunnels: Tunnels, life: int) -> None:
        self._name = name
        self._tunnels = tunnels
        self._messenger = tunnels.messenger
        self._subject = subject_of(name)
        self._flow = Flow(life)
        self._opened: dict[int, Tunnel] = {}  # by us
        self._accepted: dict[int, Tunnel] = {}
        self._last_opened = 0
        self._control: list[bytes] = []  # frames which wait for no window
        self._line: deque[Tunnel] = deque()  # those which may send
        self._flushing = False
        self._must_speak = False  # a message is due, though there are no frames
        self._must_greet = False
        self._spoke = False  # since the last beat
        self._silent_beats = 0
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._opened) + len(self._accepted)

    def open(self, kind: str, info: dict[str, object], protocol: asyncio.Protocol) -> Tunnel:
        self._last_opened += 1
        number = self._last_opened
        self.control(frames.encode_opening(number, kind, info))
        if not len(self):
            self._silent_beats = 0  # until now nobody had to be heard
        extra = {"node": self._name, "shard": info.get("shard", 0)}
        tunnel = Tunnel(self, number, True, extra, open_in=self._flow.sent + 1)
        self._opened[number] = tunnel
        tunnel.connect(protocol)
        return tunnel

    # What tunnels ask for

    def want(self, tunnel: Tunnel) -> None:
        if not tunnel.queued:
            tunnel.queued = True
            self._line.append(tunnel)
            self._flush_soon()

    def greet(self) -> None:
        self._must_greet = True
        self._flush_soon()

    def control(self, frame: bytes) -> None:
        self._control.append(frame)
        self._flush_soon()

    def drop(self, tunnel: Tunnel) -> None:
        (self._opened if tunnel.is_opener else self._accepted).pop(tunnel.number, None)

    # Sending

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is there, as far as the flow has room."""
        self._flushing = False
        if self._must_greet:
            self._must_greet = False
            self._post(self._flow.greeting(self._messenger.node), [])
        limit = self._messenger.payload_bytes_max - frames.HEAD_BYTES_MAX
        parts: list[bytes | memoryview] = []
        size = 0
        control, self._control = self._control, []
        for frame in control:
            if size + len(frame) > limit:
                self._send(parts, size)
                parts, size = [], 0
            parts.append(frame)
            size += len(frame)
        line = self._line
        while line and self._flow.has_room(size):
            room = limit - size - 2 * frames.FRAME_HEAD_BYTES  # its data, and its end
            if room <= 0:
                self._send(parts, size)
                parts, size = [], 0
                continue
            tunnel = line.popleft()
            tunnel.queued = False
            if tunnel.has_work():
                size += tunnel.take(min(room, TURN_BYTES), parts)
            if tunnel.has_work():
                self.want(tunnel)
        if size or self._must_speak:
            self._send(parts, size)

    def _send(self, parts: list[bytes | memoryview], size: int) -> None:
        head = self._flow.next_head(self._messenger.node, size)
        self._spoke = True
        self._must_speak = False
        self._post(head, parts)

    def _post(self, head: frames.Head, parts: list[bytes | memoryview]) -> None:
        self._messenger.send(self._subject, b"".join((frames.encode_head(head), *parts)))

    def _speak(self) -> None:
        self._must_speak = True
        self._flush_soon()

    def beat(self, silent_beats_max: int, heartbeat_s: float) -> None:
        if not len(self) and self._flow.is_settled():
            return
        self._silent_beats += 1
        if self._silent_beats > silent_beats_max:
            self._silent_beats = 0
            self._flow.give_up()
            if len(self):
                self.lose(
                    f"node {self._name} was not heard for {silent_beats_max * heartbeat_s:g} s"
                )
        elif not self._spoke:
            self._speak()
        self._spoke = False

    # Receiving

    def receive(self, head: frames.Head, message: bytes, start: int) -> None:
        if self._flow.is_new_life(head):
            self._lose_here(f"node {self._name} was started again")
            self._control.clear()  # meant for the former
        if not head.to_life:
            self._speak()  # it does not know our life yet
        size = len(message) - start
        arrival = self._flow.arrive(head, size)
        if arrival is Arrival.STRANGE:
            self.greet()
            return
        self._silent_beats = 0
        if arrival is Arrival.STALE:
            return
        if arrival is Arrival.GAP:
            self._lose(f"messages of node {self._name} were lost", head.number + (not size))
        try:
            for frame in frames.read_frames(message, start):
                self._on_frame(frame)
        except FrameError as error:
            # What stands behind it is lost, so all of it is.
            log.error("node %s: %s", self._name, error)
            self.lose(f"node {self._name} and {self._messenger.node} do not understand each other")
        if self._flow.must_confirm():
            self._speak()
        elif self._line:
            self._flush_soon()  # there may be room again

    def _on_frame(self, frame: Frame) -> None:
        if frame.type == frames.LOST:
            self._on_lost(frames.decode_size(frame.body))
            return
        if frame.type == frames.OPEN:
            self._accept(frame)
            return
        tunnel = (self._accepted if frame.from_opener else self._opened).get(frame.tunnel)
        if tunnel is None:
            return  # it has ended here, and the other side hears of it
        if frame.type == frames.DATA:
            tunnel.data_arrived(frame.body)
        elif frame.type == frames.WINDOW:
            tunnel.window_arrived(frames.decode_size(frame.body))
        elif frame.type == frames.END:
            tunnel.end_arrived()
        elif frame.type == frames.RESET:
            tunnel.lose(frame.body.decode(errors="replace"))
        else:
            raise FrameError(f"a frame of type {frame.type}")

    def _accept(self, frame: Frame) -> None:
        opening = frames.decode_opening(frame.body)
        here = self._messenger.node
        accept = self._tunnels.accept.get(opening.kind)
        if accept is None:
            self._refuse(frame, f"node {here} takes no tunnels of kind {opening.kind!r}")
            return
        try:
            protocol = accept(opening.info)
        except Exception:
            log.exception("a tunnel of kind %r is refused", opening.kind)
            protocol = None
        if protocol is None:
            self._refuse(frame, f"node {here} refused a tunnel of kind {opening.kind!r}")
            return
        extra = opening.info | {"node": self._name}
        if isinstance(peer := extra.get("peername"), list):
            extra["peername"] = tuple(peer)  # as sockets say it
        tunnel = self._accepted[frame.tunnel] = Tunnel(self, frame.tunnel, False, extra)
        tunnel.connect(protocol)

    def _refuse(self, frame: Frame, reason: str) -> None:
        self.control(frames.encode_reset(False, frame.tunnel, reason))

    # Losing

    def lose(self, reason: str) -> None:
        """Both sides lose what there is."""
        self._lose(reason, self._flow.received + 1)

    def lose_shard(self, shard: int, reason: str) -> None:
        for tunnel in list(self._opened.values()):
            if tunnel.get_extra_info("shard") == shard:
                self._lose_opened(tunnel, reason)

    def _lose_opened(self, tunnel: Tunnel, reason: str) -> None:
        self.control(frames.encode_reset(True, tunnel.number, reason))
        tunnel.lose(reason)

    def _lose(self, reason: str, counts_from: int) -> None:
        self._lose_here(reason)
        self.control(frames.encode_lost(counts_from))

    def _lose_here(self, reason: str) -> None:
        if len(self):
            log.warning("%d tunnels are lost: %s", len(self), reason)
        for tunnel in [*self._opened.values(), *self._accepted.values()]:
            tunnel.lose(reason)

    def _on_lost(self, counts_from: int) -> None:
        """The other side has dropped all its tunnels, and hears us from this number on."""
        reason = f"node {self._name} lost the tunnels with it"
        for tunnel in list(self._accepted.values()):
            tunnel.lose(reason)
        for tunnel in list(self._opened.values()):
            if tunnel.open_in < counts_from:
                # Its opening may have left in a later message than the earliest.
                self._lose_opened(tunnel, reason)
