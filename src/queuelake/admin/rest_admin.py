"""REST of the broker as such: subscriptions, retained messages, bans, permissions, settings."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_admin import (
    ITEMS_PER_PAGE_MAX,
    AclAnswer,
    Action,
    BanInfo,
    BanKind,
    BanList,
    RetainedMessage,
    RetainedPage,
    SettingsInForce,
    SubscriptionPage,
)

RETAINED_PATH = f"/api/v1/retained/{{topic:{SEGMENT}}}"
BAN_PATH = f"/api/v1/bans/{{kind:{SEGMENT}}}/{{value:{SEGMENT}}}"
BAN_SECONDS_MAX = 10 * 365 * 86_400
BROKER: list[Any] = ["broker"]
CLIENTS: list[Any] = ["clients"]
RETAINED: list[Any] = ["retained messages"]

Limit = Annotated[
    int, Query(ge=1, le=ITEMS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page.")]
Topic = Annotated[str, Path(min_length=1, description="The topic, percent-encoded.")]
Kind = Annotated[BanKind, Path(description="What is banned.")]
Value = Annotated[
    str, Path(min_length=1, description="Client id, user name, address or network in CIDR form.")
]


def add_admin_routes(app: FastAPI, services: Services) -> None:
    _add_broker_routes(app, services)
    _add_retained_routes(app, services)
    _add_ban_routes(app, services)


def _add_broker_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/settings", tags=BROKER, responses=returns(SettingsInForce))
    async def settings() -> Response:
        """All settings in force, as the configuration file would say them, without secrets."""
        return answer(await services.settings())

    @app.get("/api/v1/subscriptions", tags=CLIENTS, responses=returns(SubscriptionPage))
    async def subscriptions(
        limit: Limit = 100,
        cursor: Cursor = "",
        client_id: Annotated[str, Query(description="Only of this client.")] = "",
        topic: Annotated[
            str, Query(description="Only those which a message to this topic reaches.")
        ] = "",
    ) -> Response:
        """Who has subscribed to what, sorted by client id and filter, page by page."""
        return answer(await services.subscriptions(limit, cursor, client_id=client_id, topic=topic))

    @app.get("/api/v1/acl/test", tags=CLIENTS, responses=returns(AclAnswer))
    async def test_acl(
        action: Annotated[Action, Query(description="What the client would do.")],
        topic: Annotated[str, Query(min_length=1, description="To which topic or filter.")],
        client_id: Annotated[str, Query(description="Its client id.")] = "",
        username: Annotated[str, Query(description="Its user name; empty: anonymous.")] = "",
        ip: Annotated[str, Query(description="Where it comes from.")] = "127.0.0.1",
    ) -> Response:
        """Whether such a client may publish or subscribe there; rules of tokens are not known."""
        client = {"client_id": client_id, "username": username, "ip": ip}
        return answer(await services.test_acl(action, topic, **client))


def _add_retained_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/retained", tags=RETAINED, responses=returns(RetainedPage))
    async def retained(
        limit: Limit = 100,
        cursor: Cursor = "",
        topic_filter: Annotated[
            str, Query(alias="filter", description="A topic filter; empty: all.")
        ] = "",
    ) -> Response:
        """Topics with a retained message, sorted, page by page; a page may be short."""
        return answer(await services.retained(limit, cursor, topic_filter))

    @app.get(RETAINED_PATH, tags=RETAINED, responses=returns(RetainedMessage))
    async def retained_message(topic: Topic) -> Response:
        """The retained message of a topic."""
        return answer(await services.retained_message(topic))

    @app.delete(RETAINED_PATH, tags=RETAINED, status_code=204)
    async def delete_retained(topic: Topic) -> Response:
        """Delete the retained message of a topic; subscribers are told nothing."""
        await services.delete_retained(topic)
        return Response(status_code=204)


def _add_ban_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/bans", tags=CLIENTS, responses=returns(BanList))
    async def bans() -> Response:
        """Bans made while the broker runs; they end with it. The file has its own."""
        return answer(await services.bans())

    @app.put(BAN_PATH, tags=CLIENTS, responses=returns(BanInfo))
    async def ban(
        kind: Kind,
        value: Value,
        seconds: Annotated[
            float, Query(ge=0, le=BAN_SECONDS_MAX, description="For how long; 0: for ever.")
        ] = 0,
    ) -> Response:
        """Refuse a client, a user or an address from now on; who is connected is disconnected."""
        return answer(await services.ban(kind, value, seconds))

    @app.delete(BAN_PATH, tags=CLIENTS, status_code=204)
    async def end_ban(kind: Kind, value: Value) -> Response:
        """End a ban which was made while the broker runs."""
        await services.end_ban(kind, value)
        return Response(status_code=204)
