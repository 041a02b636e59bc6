"""REST of users and rules: only for the role admin, see auth.py."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request
from starlette.responses import Response

from queuelake.admin.answers import answer, problem
from queuelake.admin.bodies import read_body, read_struct, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_access import (
    AclInForce,
    AclRules,
    NewRules,
    NewUser,
    UserChange,
    UserInfo,
    UserPage,
)
from queuelake.control_admin import ITEMS_PER_PAGE_MAX

USER_PATH = f"/api/v1/users/{{name:{SEGMENT}}}"
USER_BYTES_MAX = 64 * 1024
RULES_BYTES_MAX = 4 * 1024 * 1024
TAGS: list[Any] = ["users and rules"]

Limit = Annotated[
    int, Query(ge=1, le=ITEMS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page.")]
Name = Annotated[str, Path(min_length=1, description="The user name, percent-encoded.")]
IfMatch = Annotated[
    str | None,
    Header(description="The ETag of the rules which these replace; `*`: whichever they are."),
]


def add_access_routes(app: FastAPI, services: Services) -> None:
    _add_user_routes(app, services)
    _add_rule_routes(app, services)


def _add_user_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/users", tags=TAGS, responses=returns(UserPage))
    async def users(limit: Limit = 100, cursor: Cursor = "") -> Response:
        """The users, sorted by name, page by page; never a password or a hash."""
        return answer(await services.users(limit, cursor))

    @app.get(USER_PATH, tags=TAGS, responses=returns(UserInfo))
    async def user(name: Name) -> Response:
        """One user."""
        return answer(await services.user(name))

    @app.put(
        USER_PATH,
        tags=TAGS,
        status_code=201,
        responses=returns(UserInfo, 201),
        openapi_extra=takes(NewUser),
    )
    async def add_user(name: Name, request: Request) -> Response:
        """Make a user; 409 when there is one of this name."""
        new = read_struct(await read_body(request, USER_BYTES_MAX), NewUser)
        return answer(await services.add_user(name, new), 201)

    @app.patch(USER_PATH, tags=TAGS, responses=returns(UserInfo), openapi_extra=takes(UserChange))
    async def change_user(name: Name, request: Request) -> Response:
        """Change the password, the role or the platform flag; what is not said stays."""
        change = read_struct(await read_body(request, USER_BYTES_MAX), UserChange)
        return answer(await services.change_user(name, change))

    @app.delete(USER_PATH, tags=TAGS, status_code=204)
    async def delete_user(name: Name) -> Response:
        """Delete a user; clients which are connected by this name are disconnected."""
        await services.delete_user(name)
        return Response(status_code=204)


def _add_rule_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/acl", tags=TAGS, responses=returns(AclInForce))
    async def acl() -> Response:
        """All rules, in the order in which they are asked."""
        found = await services.acl()
        return _tagged(answer(found), found.version)

    @app.put("/api/v1/acl", tags=TAGS, responses=returns(AclRules), openapi_extra=takes(NewRules))
    async def replace_acl(request: Request, if_match: IfMatch = None) -> Response:
        """Replace the rules the broker keeps: all of them, or none when one is wrong (400).

        412 when somebody has changed them since they were read, 428 without If-Match.
        """
        if if_match is None:
            message = "name the version which these rules replace: If-Match, with the ETag of GET"
            return problem(428, "PRECONDITION_REQUIRED", message)
        version = if_match.strip().removeprefix("W/").strip('"')
        kept = await services.replace_acl(await read_body(request, RULES_BYTES_MAX), version)
        return _tagged(answer(kept), kept.version)


def _tagged(response: Response, version: str) -> Response:
    response.headers["ETag"] = f'"{version}"'
    return response
