"""One rule for roles: what a service takes is what the routes over it take."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from fastapi.routing import APIRoute

from queuelake.admin.app import create_app
from queuelake.admin.auth import needed_role
from queuelake.admin.roles import CHANGING, READING, role_for
from queuelake.admin.services import Services
from queuelake.apikey import KeyFile
from queuelake.control_client import ControlClient


def test_a_service_takes_the_role_of_its_routes(tmp_path: Path) -> None:
    app = create_app(Services(ControlClient(tmp_path), KeyFile(tmp_path)))
    compared: set[str] = set()
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        for service in re.findall(r"services\.(\w+)\(", inspect.getsource(route.endpoint)):
            for method in route.methods:
                needed = needed_role(method, route.path)
                assert role_for(service) == needed, f"{method} {route.path}: {service}"
            compared.add(service)
    assert compared >= CHANGING
    assert len(compared) > 50


def test_what_is_listed_is_there() -> None:
    for name in READING | CHANGING:
        assert inspect.iscoroutinefunction(getattr(Services, name)), name


def test_what_nobody_listed_takes_an_admin() -> None:
    assert role_for("something_new") == "admin"
