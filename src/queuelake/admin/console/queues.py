"""All queues."""

from __future__ import annotations

from queuelake.admin.console import widgets
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit


@page("/queues", "Queues", icon="inventory_2")
async def queues(visit: Visit) -> None:
    widgets.title("Queues")
