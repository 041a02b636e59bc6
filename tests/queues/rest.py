"""The REST calls a queue test needs: JSON in, status and JSON out, with the key of the broker."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any
from urllib.parse import quote

from tests.harness.broker import Broker, BrokerProcess

TIMEOUT_S = 15.0


def call(broker: Broker, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request; the answer's JSON is None when it has none."""
    assert isinstance(broker, BrokerProcess), "REST needs the data directory of the broker"
    key = (broker.data_dir / "api-key").read_bytes().strip()
    headers = {"Authorization": "Basic " + base64.b64encode(key).decode()}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=TIMEOUT_S)
    try:
        connection.request(method, f"/api/v1/{path}", body=data, headers=headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    return response.status, json.loads(text) if text else None


def queue_path(queue: str, *rest: str) -> str:
    """`queues/{name}` with the name encoded as one segment, and what follows it."""
    return "/".join(["queues", quote(queue, safe=""), *(quote(one, safe="") for one in rest)])
