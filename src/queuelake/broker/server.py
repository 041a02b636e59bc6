"""Running a broker as a process: start in order, serve, stop in order.

Start: store (its lock makes the data directory ours), broker, control socket, listeners, children,
then one `ready` line with every address. SIGTERM and SIGINT end it within `shutdown_timeout_s`;
SIGHUP reads certificates, password and token files again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from queuelake import __version__
from queuelake.apikey import ensure_api_key
from queuelake.broker.audit import Audit
from queuelake.broker.children import Supervisor, admin_child, bind_http
from queuelake.broker.control import ControlServer
from queuelake.broker.core import Broker
from queuelake.broker.listener import Listeners
from queuelake.broker.operations import Operations, is_compiled
from queuelake.broker.sys_topics import SysTopics
from queuelake.control_audit import AUDIT
from queuelake.errors import ConfigError
from queuelake.settings import Settings
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.server")

SWITCH_INTERVAL_S = 0.0005  # the commit thread must not wait 5 ms for the interpreter lock
BUFFERED_SYNC_S = 1.0
GC_THRESHOLDS = (20_000, 20, 100)  # messages make no cycles: look for them now and then
ADMIN_START_TIMEOUT_S = 10.0


def run(settings: Settings) -> int:
    """Serve until a signal says stop; returns the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(Server(settings).serve())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Server:
    """One broker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = Path(settings.data_dir).expanduser()
        self._stop = asyncio.Event()

    async def serve(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        store = LmdbStore(self._data_dir, settings.storage)
        try:
            ensure_api_key(self._data_dir)
            broker = Broker(settings, store, loop)
            broker.start()
            await self._serve(broker, store)
        finally:
            store.close()
        log.info("stopped")
        return 0

    async def _serve(self, broker: Broker, store: LmdbStore) -> None:
        settings = self._settings
        listeners = Listeners(broker, settings)
        addresses = listeners.addresses
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._drain, broker)
            await listeners.open()
            stack.callback(listeners.close)
            supervisor = await self._start_admin(stack, store, addresses)
            restarts = supervisor.restarts if supervisor is not None else {}
            operations = Operations(broker, addresses, restarts)
            audit = Audit(self._data_dir, broker.clock.now_ms)
            stack.callback(audit.close)
            table = operations.table() | {AUDIT: audit.page}
            control = ControlServer(self._data_dir, table, audit)
            await control.start()
            stack.push_async_callback(control.close)
            self._handle_signals(broker, listeners)
            if supervisor is not None:
                supervisor.start()
                stack.push_async_callback(supervisor.close, settings.shutdown_timeout_s / 2)
                await self._admin_started(operations)
            SysTopics(broker, settings.sys.interval_s).start()
            if settings.storage.durability == "buffered":
                stack.callback(asyncio.create_task(_sync_now_and_then(store)).cancel)
            gc.set_threshold(*GC_THRESHOLDS)
            gc.collect()
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

    async def _start_admin(
        self, stack: contextlib.AsyncExitStack, store: LmdbStore, addresses: list[str]
    ) -> Supervisor | None:
        settings = self._settings
        if not settings.http.enabled:
            return None
        listening = bind_http(settings)
        stack.callback(listening.close)
        host, port = listening.getsockname()[:2]
        addresses.append(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        child = admin_child(settings, self._data_dir, listening)
        return Supervisor([child], on_death=lambda _: store.free_dead_readers())

    async def _admin_started(self, operations: Operations) -> None:
        """`ready` means every address answers; a broken admin process delays it, no more."""
        waits = [
            asyncio.ensure_future(event.wait()) for event in (operations.admin_started, self._stop)
        ]
        done, waiting = await asyncio.wait(
            waits, timeout=ADMIN_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in waiting:
            wait.cancel()
        if not done:
            log.warning("the admin process has not started within %s s", ADMIN_START_TIMEOUT_S)

    async def _drain(self, broker: Broker) -> None:
        try:
            await asyncio.wait_for(broker.stop(), self._settings.shutdown_timeout_s)
        except TimeoutError:
            log.error("not everything was written within %s s", self._settings.shutdown_timeout_s)

    def _handle_signals(self, broker: Broker, listeners: Listeners) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload, broker, listeners)

    def _reload(self, broker: Broker, listeners: Listeners) -> None:
        for name, reload in (
            ("certificate", listeners.reload_certificate),
            ("users", broker.authenticator.reload),
        ):
            try:
                reload()
                log.info("%s read again", name)
            except ConfigError as error:
                for mistake in error.mistakes:
                    log.error("%s kept as it was: %s", name, mistake)


async def _sync_now_and_then(store: LmdbStore) -> None:
    """`durability = "buffered"`: at most this much is lost when the machine loses power."""
    while True:
        await asyncio.sleep(BUFFERED_SYNC_S)
        await asyncio.to_thread(store.sync)
