"""Asks the REST interface of a broker under load."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from peers import Running


def ask(running: Running, method: str, path: str, body: dict[str, object] | None = None) -> Any:
    """`path` begins behind `/api/v1`, unless it names another version."""
    prefix = "" if path.startswith("/api/") else "/api/v1"
    url = f"http://127.0.0.1:{running.http_port}{prefix}{path}"
    key = base64.b64encode(running.api_key.encode()).decode()
    headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())
