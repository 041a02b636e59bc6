"""Asks the REST interface of a broker under load."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from peers import Running


def authorized(running: Running, path: str, data: bytes | None = None) -> urllib.request.Request:
    key = base64.b64encode(running.api_key.encode()).decode()
    headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}
    return urllib.request.Request(f"http://127.0.0.1:{running.http_port}{path}", data, headers)


def ask(running: Running, method: str, path: str, body: dict[str, object] | None = None) -> Any:
    """`path` begins behind `/api/v1`, unless it names another version."""
    prefix = "" if path.startswith("/api/") else "/api/v1"
    data = None if body is None else json.dumps(body).encode()
    request = authorized(running, prefix + path, data)
    request.method = method
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())
