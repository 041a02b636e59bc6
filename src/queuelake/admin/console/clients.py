"""Clients: who is connected or has a session, and one of them with what can be done to it."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.banning import ban_form
from queuelake.admin.console.listing import (
    ROWS_PER_PAGE,
    Listing,
    Nothing,
    Row,
    keep_fresh,
    search_box,
)
from queuelake.admin.console.shell import belongs_to, link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control import ClientInfo
from queuelake.control_admin import SubscriptionInfo

REFRESH_S = 5.0
NEVER_EXPIRES = 0xFFFFFFFF
PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}

belongs_to("/client", "/clients")


@page("/clients", "Clients", icon="devices", section="Clients")
async def clients(visit: Visit, search: str = "") -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.clients, ROWS_PER_PAGE, cursor, box.value or "")
        return [_row(one) for one in found.items], found.next_cursor

    async def search_again() -> None:
        await listing.restart()

    with widgets.title("Clients", "Who is connected, and who has a session which waits for it"):
        box = search_box("Client id, user or address", search, search_again)
    listing = Listing(
        [
            Column("client_id", "Client", link="href"),
            Column("state", "State"),
            Column("username", "User", minor=True),
            Column("address", "Address", minor=True),
            Column("protocol", "MQTT", minor=True),
            Column("since", "Connected for", exact="since_exact", minor=True),
            Column("subscriptions", "Subscriptions", number=True, minor=True),
            Column("queued", "Queued", number=True),
            Column("in_flight", "In flight", number=True, minor=True),
        ],
        fetch,
        Nothing("devices", "No client", "Nobody is here who fits; try a shorter search."),
        key="client_id",
    )
    await listing.restart()
    keep_fresh(REFRESH_S, listing.refresh)


def _row(one: ClientInfo) -> Row:
    return {
        "client_id": one.client_id,
        "href": link_to("/client", id=one.client_id),
        "state": "connected" if one.connected else "away",
        "state_class": "ql-chip ql-chip-good" if one.connected else "ql-chip ql-chip-plain",
        "username": one.username or "",
        "address": one.address or "",
        "protocol": PROTOCOLS.get(one.protocol_level or 0, ""),
        "since": human.ago(one.connected_at_ms or 0).removesuffix(" ago"),
        "since_exact": human.moment(one.connected_at_ms or 0),
        "subscriptions": human.count(one.subscriptions),
        "queued": human.count(one.queued_messages),
        "in_flight": human.count(one.inflight_messages),
    }


@page("/client", "Client")
async def client(visit: Visit, id: str = "") -> None:
    one = await visit.do(Services.client, id)

    async def disconnect() -> None:
        words = (
            "Its connection is closed. A persistent session stays, with what is queued for it,"
            " and the client may connect again at once: to keep it out, ban it."
        )
        if await widgets.confirm(f"Disconnect {id}?", words, action="Disconnect"):
            await visit.do(Services.disconnect, id)
            widgets.say(f"{id} was disconnected")
            ui.navigate.to("/clients")

    with widgets.title(id, "Client"):
        ui.space()
        if one.connected and visit.may(Services.disconnect):
            button = ui.button("Disconnect", icon="link_off", on_click=disconnect)
            button.props("outline no-caps color=negative")
        if visit.may(Services.ban):
            ban = ui.button("Ban", icon="block", on_click=lambda: ban_form(visit, "clientid", id))
            ban.props("outline no-caps color=negative")
    with ui.element("div").classes("ql-columns"):
        with widgets.card("Connection"):
            widgets.facts(_connection(one))
        with widgets.card("Session"):
            widgets.facts(_session(one))
    with widgets.card("Subscriptions"):
        await _subscriptions(visit, id)


def _connection(one: ClientInfo) -> list[tuple[str, object]]:
    return [
        ("State", "connected" if one.connected else "away"),
        ("User", one.username),
        ("Address", one.address),
        ("Listener", one.listener),
        ("MQTT", PROTOCOLS.get(one.protocol_level or 0)),
        ("Connected since", human.moment(one.connected_at_ms or 0)),
        ("Keep alive", human.duration(one.keepalive_s) if one.keepalive_s else "off"),
    ]


def _session(one: ClientInfo) -> list[tuple[str, object]]:
    expiry = "never" if one.session_expiry_s == NEVER_EXPIRES else ""
    return [
        ("Kept", "only while connected" if one.clean_start else "yes"),
        ("Expires after", expiry or human.duration(one.session_expiry_s)),
        ("Subscriptions", one.subscriptions),
        ("Queued", f"{human.count(one.queued_messages)}, {human.size(one.queued_bytes)}"),
        ("In flight", one.inflight_messages),
    ]


async def _subscriptions(visit: Visit, client_id: str) -> None:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.subscriptions, ROWS_PER_PAGE, cursor, client_id=client_id)
        return [subscription_row(one) for one in found.subscriptions], found.next

    listing = Listing(
        [Column("filter", "Topic filter"), Column("qos", "QoS"), Column("options", "Options")],
        fetch,
        Nothing("rss_feed", "No subscriptions"),
        key="filter",
    )
    await listing.restart()


def subscription_row(one: SubscriptionInfo) -> Row:
    options = [
        words
        for words, wanted in (
            ("no local", one.no_local),
            ("retain as published", one.retain_as_published),
            (f"id {one.subscription_id}", one.subscription_id),
        )
        if wanted
    ]
    return {
        "key": f"{one.client_id}\0{one.topic_filter}",
        "client_id": one.client_id,
        "href": link_to("/client", id=one.client_id),
        "filter": one.topic_filter,
        "qos": one.qos,
        "options": ", ".join(options),
    }
