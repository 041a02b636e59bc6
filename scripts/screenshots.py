"""Pictures of the console for the documentation: `scripts/screenshots [NAME ...]`.

Each page is taken wide and light, and on a phone in the dark; some wide and dark, too. `BEFORE`
says what is clicked first.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.api.queue_rest import Rest
from tests.console.browser import Console, launched
from tests.console.fleet import Fleet
from tests.console.shop import Shop
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import Cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "console"
SETTLED_MS = 1_500  # until what moves has come to rest
SHAPES: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}},
    "-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}
CLUSTER = "cluster"  # needs one
WIDE_AND_DARK = ("overview", "queue")
PATIENCE_MS = {"overview": 45_000, "queue": 20_000}  # charts have something to tell then
PAGES = {
    "overview": "/",
    "queues": "/queues",
    "new-queue": "/queues",
    "queue": "/queue?name=orders/new",
    "queue-messages": "/queue?name=images/resize&tab=messages",
    "queue-letters": "/queue?name=orders/new&tab=letters",
    "message-queue": "/message-queue?name=door-alarms",
    "clients": "/clients?search=truck",
    "client": "/client?id=truck-leipzig-001",
    "subscriptions": "/subscriptions?topic=fleet/truck-ulm-002/command",
    "retained": "/retained?filter=fleet/%2B/status",
    "try": "/try",
    "bans": "/bans",
    "mailboxes": "/mailboxes",
    "mailbox": "/mailbox?owner=truck-kiel-003",
    "fanout": "/fanout",
    "vehicle": "/vehicle?vin=WQL00000000000030",
    "pipeline": "/pipeline",
    "users": "/users",
    "permissions": "/permissions",
    "settings": "/settings",
    "audit": "/audit",
    "backups": "/backups",
}


def main(wanted: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    alone = [name for name in wanted or PAGES if name != CLUSTER]
    if alone:
        main_alone(alone)
    if len(alone) < len(wanted or [*PAGES, CLUSTER]):
        take_cluster()


def main_alone(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "broker", {"mqtt.receive_max": 256})
        broker.start()
        fleet, shop = Fleet(broker), Shop(broker, Rest(broker))
        try:
            fill(fleet, Rest(broker))
            shop.open()
            take(broker, fleet, wanted)
        finally:
            shop.close()
            fleet.close()
            broker.stop()


def fill(fleet: Fleet, rest: Rest) -> None:
    """A morning in the life of a broker."""
    fleet.add_trucks(12)
    fleet.add_requests()
    fleet.add_orders(rest)
    fleet.add_access(rest)


def take(broker: BrokerProcess, fleet: Fleet, wanted: list[str]) -> None:
    with launched() as browsing:
        console = Console(browsing, broker)
        take_login(console)
        for suffix, shape in SHAPES.items():
            page = console("admin", **shape)
            for name in wanted:
                if suffix == "-dark" and name not in WIDE_AND_DARK:
                    continue
                if name == "pipeline":
                    fleet.add_jobs()  # one which is silent for a minute counts as lost
                page.goto(console.url + PAGES[name])
                page.wait_for_selector(".ql-content > *")
                page.wait_for_timeout(PATIENCE_MS.get(name, SETTLED_MS))
                if name in BEFORE:
                    BEFORE[name](page)
                    page.wait_for_timeout(SETTLED_MS)
                path = FOLDER / f"{name}{suffix}.png"
                page.screenshot(path=path)
                print(path)
        console.close()


def take_cluster() -> None:
    """Three nodes, seen from one which is not the owner."""
    settings = {"http.enabled": True}
    with (
        tempfile.TemporaryDirectory() as directory,
        Cluster(Path(directory), settings) as cluster,
        launched() as browsing,
    ):
        console = Console(browsing, cluster.nodes[(cluster.owner() + 1) % 3])
        for suffix in ("", "-phone"):
            page = console("admin", "/cluster", **SHAPES[suffix])
            page.get_by_role("row").nth(3).wait_for()
            page.wait_for_timeout(SETTLED_MS)
            path = FOLDER / f"{CLUSTER}{suffix}.png"
            page.screenshot(path=path)
            print(path)
        console.close()


def take_login(console: Console) -> None:
    page = console.blank(**SHAPES[""])
    page.goto(f"{console.url}/login")
    page.screenshot(path=FOLDER / "login.png")


def _make_queue(page: Page) -> None:
    page.get_by_role("button", name="New queue").click()
    page.get_by_label("Name", exact=True).fill("orders/priority")


def _open_cell(page: Page) -> None:
    page.locator("tbody button").first.click()


def _open_configuration(page: Page) -> None:
    page.get_by_role("row").filter(has_text="queue_configure").first.click()


def _open_first(page: Page) -> None:
    page.locator("tbody tr").first.click()


def _send_command(page: Page) -> None:
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_text("connected", exact=True).wait_for()
    page.get_by_label("Topic filter").fill("fleet/#")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_label("Topic", exact=True).fill("fleet/truck-ulm-002/command")
    page.get_by_label("Payload", exact=True).fill('{"stop": "Ulm", "dock": 7}')
    page.get_by_role("button", name="Publish", exact=True).click()


def _ask_permission(page: Page) -> None:
    page.get_by_label("Client id", exact=True).fill("truck-ulm-002")
    page.get_by_label("Topic", exact=True).fill("fleet/truck-kiel-003/command")
    page.get_by_role("button", name="Test").click()


def _back_up(page: Page) -> None:
    page.get_by_role("button", name="Back up now").click()


BEFORE: dict[str, Callable[[Page], None]] = {
    "new-queue": _make_queue,
    "queue-letters": _open_cell,
    "audit": _open_configuration,
    "retained": _open_first,
    "try": _send_command,
    "permissions": _ask_permission,
    "backups": _back_up,
}


if __name__ == "__main__":
    main(sys.argv[1:])
