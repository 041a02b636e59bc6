"""The try-it page: a client in the browser, straight to the broker's WebSocket listener.

Nothing of it passes through the admin process: the broker sees a client like any other, with its
own user and its own permissions.
"""

from __future__ import annotations

from typing import Any

from nicegui import ui
from nicegui.element import Element

from queuelake.admin.console import widgets
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services


class TryIt(Element, component="static/try_it.js", esm={"queuelake-mqtt": "static"}):
    """The forms and the messages; see try_it.js."""

    def __init__(self, addresses: dict[str, str]) -> None:
        super().__init__()
        self._props["addresses"] = addresses


@page("/try", "Try it", icon="science", section="Clients")
async def try_it(visit: Visit) -> None:
    status = await visit.do(Services.status)
    sockets: dict[str, Any] = {
        name: url for name, url in status.addresses.items() if name in ("ws", "wss")
    }
    widgets.title("Try it", "Subscribe and publish from this browser, over the broker's WebSocket")
    if not sockets:
        hint = "Turn on listeners.ws or listeners.wss to use this page."
        widgets.empty("science", "This broker has no WebSocket listener", hint)
        return
    TryIt(sockets)
    ui.label("Nothing is remembered: neither the password nor the messages.").classes("ql-note")
