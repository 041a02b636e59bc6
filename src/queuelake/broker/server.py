"""Running a broker as a process: start in order, serve, stop in order.

Start: store (its lock makes the data directory ours), broker, control socket, listeners, children,
then one `ready` line with every address. SIGTERM and SIGINT end it within `shutdown_timeout_s`;
SIGHUP reads certificates, users, token keys and the rules in the data directory again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from queuelake import __version__
from queuelake.apikey import ensure_api_key
from queuelake.broker.audit import Audit
from queuelake.broker.children import (
    EXPORT,
    Child,
    Supervisor,
    admin_child,
    bind_http,
    export_child,
    reserve,
    url,
)
from queuelake.broker.clock import Clock
from queuelake.broker.compiled import is_compiled
from queuelake.broker.control import ControlServer
from queuelake.broker.listener import Listeners
from queuelake.broker.serving import Node, Place, Serving
from queuelake.cluster.founding import leave_cluster
from queuelake.control import CHILD_STARTED
from queuelake.control_audit import AUDIT
from queuelake.errors import ConfigError
from queuelake.settings import Flight, Grpc, Settings
from queuelake.storage import shards as stores
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.server")

SWITCH_INTERVAL_S = 0.0005  # the commit thread must not wait 5 ms for the interpreter lock
BUFFERED_SYNC_S = 1.0
CHILD_START_TIMEOUT_S = 20.0
RESERVATION_SHARES = sys.platform == "linux"  # see `reserve`
# What the children import, and the broker never does.
GRPC = ("grpc", "grpc_health", "grpc_reflection")
ARROW = ("pyarrow",)


def run(settings: Settings, origins: Mapping[str, str]) -> int:
    """Serve until a signal says stop; returns the exit code. `origins`: where settings are from."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(Server(settings, origins).serve())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Server:
    """One broker process."""

    def __init__(self, settings: Settings, origins: Mapping[str, str]) -> None:
        self._settings = settings
        self._origins = origins
        self._data_dir = Path(settings.data_dir).expanduser()
        self._stop = asyncio.Event()
        self._node: Node | None = None

    async def serve(self) -> int:
        async with contextlib.AsyncExitStack() as stack:
            await self._serve(stack)
        log.info("stopped")
        return 0

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        addresses: list[str] = []
        services: list[str] = []
        audit = Audit(self._data_dir, Clock().now_ms)
        stack.callback(audit.close)
        supervisor = self._supervisor(stack, services)
        place = Place(
            settings,
            self._origins,
            self._data_dir,
            addresses,
            supervisor.restarts,
            audit,
            lambda: supervisor.restart(EXPORT),
        )
        node = self._node = await self._open_node(place, stack)
        ensure_api_key(self._data_dir)
        await node.start()
        stack.push_async_callback(node.stop)
        listeners = Listeners(node.protocol, settings)
        stack.callback(listeners.close)
        addresses += [*await listeners.open(), *services]
        own = {AUDIT: audit.page, CHILD_STARTED: supervisor.child_started}
        control = ControlServer(self._data_dir, node.table(own), audit)
        await control.start()
        stack.push_async_callback(control.close)
        self._handle_signals(node, listeners)
        supervisor.start()
        stack.push_async_callback(supervisor.close, settings.shutdown_timeout_s / 2)
        await self._children_started(supervisor)
        if settings.storage.durability == "buffered":
            stack.callback(asyncio.create_task(_sync_now_and_then(node)).cancel)
        gc.freeze()  # what lives now lives for ever: spare the collector the walk
        log.info(
            "queuelake %s, hot path %s, data in %s",
            __version__,
            "compiled" if is_compiled() else "interpreted",
            self._data_dir,
        )
        print("ready " + " ".join(addresses), flush=True)
        await self._stop.wait()
        log.info("stopping")

    async def _open_node(self, place: Place, stack: contextlib.AsyncExitStack) -> Node:
        """Open the store, whose lock makes the data directory ours."""
        if place.settings.cluster.enabled:
            from queuelake.broker.node.joining import join

            return await join(place, stack)
        if (found := stores.count(self._data_dir)) > 1:
            words = f"the data directory {self._data_dir} has stores for {found} shards"
            raise ConfigError([f"cluster.enabled = false: {words}"])
        store = LmdbStore(self._data_dir, place.settings.storage)
        stack.callback(store.close)
        leave_cluster(store)
        return Serving(place, store)

    def _supervisor(self, stack: contextlib.AsyncExitStack, addresses: list[str]) -> Supervisor:
        settings = self._settings
        children: list[Child] = []
        if settings.http.enabled:
            listening = bind_http(settings)
            stack.callback(listening.close)
            addresses.append(url("http", listening.getsockname()[:2]))
            grpc_address = None
            if settings.grpc.enabled and _has_modules("gRPC", "grpc", "grpc", GRPC):
                grpc_address = _reserve(stack, "grpc", settings.grpc)
                scheme = "grpcs" if settings.grpc.certificate else "grpc"
                addresses.append(url(scheme, grpc_address))
            children.append(admin_child(settings, self._data_dir, listening, grpc_address))
        if settings.flight.enabled and _has_modules("Arrow Flight", "flight", "spark", ARROW):
            address = _reserve(stack, "flight", settings.flight)
            scheme = "flight+tls" if settings.flight.certificate else "flight"
            addresses.append(url(scheme, address))
            children.append(export_child(settings, self._data_dir, address))
        return Supervisor(children, on_death=self._child_died)

    def _child_died(self, name: str) -> None:
        if self._node is not None:
            self._node.free_dead_readers()

    async def _children_started(self, supervisor: Supervisor) -> None:
        """`ready` means every address answers; a broken child delays it, no more."""

        async def all_started() -> None:
            for event in supervisor.started.values():
                await event.wait()

        waits = [asyncio.ensure_future(wait) for wait in (all_started(), self._stop.wait())]
        done, waiting = await asyncio.wait(
            waits, timeout=CHILD_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in waiting:
            wait.cancel()
        if not done:
            late = [name for name, event in supervisor.started.items() if not event.is_set()]
            log.warning("not started within %s s: %s", CHILD_START_TIMEOUT_S, ", ".join(late))

    def _handle_signals(self, node: Node, listeners: Listeners) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, _reload, node, listeners)


def _reload(node: Node, listeners: Listeners) -> None:
    try:
        listeners.reload_certificate()
        log.info("certificate read again")
    except ConfigError as error:
        for mistake in error.mistakes:
            log.error("certificate kept as it was: %s", mistake)
    node.reload()


def _reserve(
    stack: contextlib.AsyncExitStack, section: str, wanted: Grpc | Flight
) -> tuple[str, int]:
    reserved = reserve(section, wanted.bind, wanted.port)
    stack.callback(reserved.close)
    host, port = reserved.getsockname()[:2]
    if not RESERVATION_SHARES:
        reserved.close()
    return host, port


def _has_modules(service: str, section: str, extra: str, modules: Sequence[str]) -> bool:
    """Only looked for: the broker itself never imports them."""
    if all(importlib.util.find_spec(module) is not None for module in modules):
        return True
    log.info(
        "no %s: pip install 'queuelake[%s]', or set %s.enabled = false", service, extra, section
    )
    return False


async def _sync_now_and_then(node: Node) -> None:
    """`durability = "buffered"`: at most this much is lost when the machine loses power."""
    while True:
        await asyncio.sleep(BUFFERED_SYNC_S)
        await asyncio.to_thread(node.sync)
