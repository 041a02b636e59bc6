"""All pages put together, in NiceGUI's application. Imported when the first page is asked for."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from importlib.resources import files

from fastapi import FastAPI
from nicegui import app, ui

# The order of the navigation is the order in which pages are imported.
from queuelake.admin.console import overview, queues, queue, message_queue  # isort: skip # noqa: F401
from queuelake.admin.console import clients, subscriptions, retained, try_it, bans  # isort: skip # noqa: F401
from queuelake.admin.console import mailboxes, fanout, pipeline  # isort: skip # noqa: F401
from queuelake.admin.console import users, permissions, settings_page, audit, backups, cluster  # isort: skip # noqa: F401
from queuelake.admin.console.shell import root
from queuelake.errors import QueuelakeError

RECONNECT_TIMEOUT_S = 10.0
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g fill="#0b7285">'
    '<rect width="24" height="8" rx="3"/><rect y="10" width="24" height="5" rx="2"/>'
    '<rect y="17" width="24" height="5" rx="2"/></g></svg>'
)

_running = AsyncExitStack()


async def start(prefix: str) -> FastAPI:
    """The pages under `prefix`, ready to be asked."""
    logging.getLogger("nicegui").addFilter(_tells_more_than_the_page)
    # Long polling would pass requests which no WebSocket check has seen.
    app.config.socket_io_js_transports = ["websocket"]
    for name in ("base.css", "console.css", "pages.css"):
        ui.add_css(files(__package__).joinpath(name).read_text(), shared=True)
    site = FastAPI(openapi_url=None)
    ui.run_with(
        site,
        root=root,
        title="Queuelake",
        favicon=FAVICON,
        dark=None,
        tailwind=False,  # base.css has what we need of it
        language="en-US",
        mount_path=prefix,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_TIMEOUT_S,
        show_welcome_message=False,
    )
    await _running.enter_async_context(site.router.lifespan_context(site))
    return site


async def stop() -> None:
    await _running.aclose()


def _tells_more_than_the_page(record: logging.LogRecord) -> bool:
    """A refusal is shown to whoever asked; it is no mistake of ours."""
    return not (record.exc_info and isinstance(record.exc_info[1], QueuelakeError))
