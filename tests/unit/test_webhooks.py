"""Alerts against a real HTTP server; only the pauses and the breaker's clock are played."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from queuelake.broker import webhooks
from queuelake.broker.webhooks import (
    BACKLOG_MAX,
    BACKLOG_PER_URL_MAX,
    BREAKER_OPEN_S,
    DeadLetterAlert,
    Webhooks,
)
from tests.api.live import wait_until

ALERT = DeadLetterAlert(
    queue_name="$queue/tasks/image",
    dlq_topic="$queue/dlq/tasks/image",
    message_id="tasks/image:3:17",
    failure_reason="max_retries",
    retry_count=10,
    first_attempt="2026-11-16T01:02:03.004Z",
    moved_to_dlq_at="2026-11-16T02:02:03.004Z",
    total_duration="3600s",
)


class Receiver:
    """Answers with `statuses` in turn, the last one for ever; 0 means: not at all."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status:
            await asyncio.sleep(60)
        return web.Response(status=status, headers={"Location": "/elsewhere"})


class Time:
    """A clock which only moves when somebody pauses, or a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s
        await asyncio.sleep(0)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/alerts", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/alerts"
    yield receiver
    await runner.cleanup()


@pytest.fixture
def played() -> Time:
    return Time()


@pytest.fixture
async def hooks(played: Time) -> AsyncIterator[Webhooks]:
    hooks = Webhooks(played.sleep, played.monotonic_s)
    yield hooks
    await hooks.close()


async def eventually(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


def counters(hooks: Webhooks) -> tuple[int, int, int]:
    return hooks.sent, hooks.failed, hooks.dropped


async def test_an_alert_arrives_as_the_json_of_the_contract(
    hooks: Webhooks, receiver: Receiver
) -> None:
    """Acceptance 10, D26."""
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 1)
    assert receiver.bodies == [
        {
            "queue_name": "$queue/tasks/image",
            "dlq_topic": "$queue/dlq/tasks/image",
            "message_id": "tasks/image:3:17",
            "failure_reason": "max_retries",
            "retry_count": 10,
            "first_attempt": "2026-11-16T01:02:03.004Z",
            "moved_to_dlq_at": "2026-11-16T02:02:03.004Z",
            "total_duration": "3600s",
        }
    ]
    assert receiver.headers[0]["content-type"] == "application/json"


async def test_a_server_error_is_tried_again_after_a_pause(
    hooks: Webhooks, receiver: Receiver, played: Time
) -> None:
    receiver.statuses = [500, 503, 204]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 1)
    assert played.pauses == [1.0, 2.0]
    assert counters(hooks) == (1, 0, 0)


async def test_after_three_tries_an_alert_has_failed_and_the_next_one_is_sent(
    hooks: Webhooks, receiver: Receiver, played: Time, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 500, 500, 200]
    hooks.alert(receiver.url, ALERT)
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 1)
    assert played.pauses == [1.0, 2.0]
    assert counters(hooks) == (1, 1, 0)
    [line] = [record.getMessage() for record in caplog.records if record.name.endswith("webhooks")]
    assert line.endswith("failed after 3 tries: HTTP status 500")
    assert "/alerts" not in line, "the path of a webhook is often its secret"


async def test_the_pause_grows_to_its_limit(
    hooks: Webhooks, receiver: Receiver, played: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TRIES_MAX", 8)
    monkeypatch.setattr(webhooks, "BREAKER_FAILURES", 100)
    receiver.statuses = [500]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.failed == 1)
    assert played.pauses == [1, 2, 4, 8, 16, 30, 30]


async def test_a_receiver_which_does_not_answer_is_given_up(
    hooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.05)
    receiver.statuses = [0]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.failed == 1)
    assert len(receiver.bodies) == 3


async def test_one_that_hangs_does_not_hold_up_another(
    hooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 60.0)
    receiver.statuses = [0, 200]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: len(receiver.bodies) == 1)
    hooks.alert(receiver.url + "?another", ALERT)
    await eventually(lambda: hooks.sent == 1)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://", "not a url", "ftp://127.0.0.1/x", "http://[", "http://a:b/"],
)
async def test_an_address_which_cannot_be_reached_is_a_failure(
    hooks: Webhooks, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.alert(url, ALERT)
    await eventually(lambda: hooks.failed == 1)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_a_redirect_is_not_followed(hooks: Webhooks, receiver: Receiver) -> None:
    receiver.statuses = [307]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.failed == 1)
    assert len(receiver.bodies) == 3


async def test_the_breaker_opens_after_five_failures_and_closes_with_a_success(
    hooks: Webhooks, receiver: Receiver, played: Time
) -> None:
    receiver.statuses = [500]
    for _ in range(4):
        hooks.alert(receiver.url, ALERT)
    await eventually(lambda: sum(counters(hooks)) == 4)
    # Three tries, then two more; the others were not tried at all.
    assert len(receiver.bodies) == 5
    assert counters(hooks) == (0, 2, 2)
    played.now_s += BREAKER_OPEN_S - 0.1
    hooks.alert(receiver.url, ALERT)
    assert hooks.dropped == 3

    played.now_s += 0.2
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.failed == 3)
    assert len(receiver.bodies) == 6, "one try decides"
    hooks.alert(receiver.url, ALERT)
    assert hooks.dropped == 4

    played.now_s += BREAKER_OPEN_S + 0.1
    receiver.statuses = [200]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 1)
    receiver.statuses = [500, 200]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 2)


async def test_the_breaker_of_one_url_is_not_that_of_another(
    hooks: Webhooks, receiver: Receiver
) -> None:
    for _ in range(2):
        hooks.alert("http://127.0.0.1:1/", ALERT)
    await eventually(lambda: hooks.failed == 2)
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: hooks.sent == 1)


async def test_a_full_backlog_drops_and_never_waits(hooks: Webhooks, receiver: Receiver) -> None:
    receiver.statuses = [0]
    begin = time.monotonic()
    for _ in range(3 * BACKLOG_MAX):
        hooks.alert(receiver.url, ALERT)
    assert time.monotonic() - begin < 1.0
    assert hooks.dropped == 3 * BACKLOG_MAX - BACKLOG_PER_URL_MAX
    for number in range(BACKLOG_MAX):
        hooks.alert(f"{receiver.url}?{number}", ALERT)
    assert hooks.dropped == 3 * BACKLOG_MAX, "and all of them together have a limit too"
    await hooks.close()
    assert counters(hooks) == (0, 0, 4 * BACKLOG_MAX)


async def test_urls_are_forgotten_when_there_are_too_many(
    hooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "URLS_MAX", 2)
    for number in range(5):
        hooks.alert(f"{receiver.url}?{number}", ALERT)
        await eventually(lambda count=number + 1: hooks.sent == count)  # type: ignore[misc]
    receiver.statuses = [0]
    for number in range(5):
        hooks.alert(f"{receiver.url}?{number}", ALERT)
    assert hooks.dropped == 3, "two are being called, and there is no room for a third"


async def test_close_drops_what_has_not_left(hooks: Webhooks, receiver: Receiver) -> None:
    receiver.statuses = [0]
    hooks.alert(receiver.url, ALERT)
    await eventually(lambda: len(receiver.bodies) == 1)
    hooks.alert(receiver.url, ALERT)
    await hooks.close()
    hooks.alert(receiver.url, ALERT)
    assert counters(hooks) == (0, 0, 3)


def test_a_broker_without_webhooks_does_not_load_an_http_client() -> None:
    code = "import sys, queuelake.broker.webhooks; sys.exit('aiohttp' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
