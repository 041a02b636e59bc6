"""One message for the tests of key expressions: that of the page docs/mq/key-expressions.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from queuelake.expressions import Fields, parse_expression
from queuelake.protocol import properties as p

TOPIC = b"home/kitchen/temp"
PAYLOAD = b'{"id": 7, "sensor": {"name": "T-1", "value": 21.5}, "tags": ["a", "b"], "gone": null}'
PROPERTIES = (
    p.write_value(p.CONTENT_TYPE, b"application/json")
    + p.write_number(p.MESSAGE_EXPIRY, 60)
    + p.write_user([(b"mq-key", b"first"), (b"site", b"Berlin"), (b"mq-key", b"k-42")])
)


def make_fields(
    *,
    topic: bytes = TOPIC,
    payload: bytes = PAYLOAD,
    client_id: str = "dev-1",
    properties: bytes = PROPERTIES,
    username: str | None = "alice",
    peername: str = "192.0.2.7:49152",
    environment: Mapping[str, str] | None = None,
    dice: Callable[[int], int] = lambda sides: 10 % sides,
) -> Fields:
    return Fields(
        topic=topic,
        payload=payload,
        qos=1,
        retain=True,
        dup=False,
        client_id=client_id,
        timestamp_ms=1_790_000_000_123,
        message_id="0006473A1F",
        properties=properties,
        username=username,
        peername=peername,
        proto_ver=5,
        environment={"QUEUELAKE_VAR_ZONE": "eu-1", "SECRET": "x"}
        if environment is None
        else environment,
        now_ms=1_790_000_001_999,
        dice=dice,
    )


def key_of(expression: str, fields: Fields | None = None) -> str:
    return parse_expression(expression).evaluate(fields or make_fields()).decode()
