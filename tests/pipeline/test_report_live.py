"""The report of a real lake: its numbers are those of what was done (acceptance 19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.apikey import read_api_key
from queuelake.client.blocking import Client
from queuelake.pipeline.jobs import report
from tests.harness.broker import BrokerProcess
from tests.pipeline.lakes import LakeUnderTest

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession

CONFIG = """
[queues."parts"]
partitions = 2
retry_policy.max_retries = 1
"""
PARTS = {"good": 20, "second try": 6, "broken": 4, "hopeless": 3}
NOTES = 7  # which nobody reads
WAIT_S = 60.0


class Done(Counter[str]):
    """What was done to a queue, counted by those who did it."""

    def settle(self, message: Any) -> bool:
        """One delivery of a part; whether it was the last of this part."""
        self["delivered"] += 1
        kind = message.payload.decode().rpartition(" ")[0]
        if kind == "good" or (kind == "second try" and message.delivery_count == 2):
            message.ack()
            self["acked"] += 1
            return True
        if kind == "broken":
            message.reject("bent")
            self["rejected"] += 1
            return True
        message.nack()
        self["nacked"] += 1
        return kind == "hopeless" and message.delivery_count == 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("report")
    process = BrokerProcess(directory, {"flight.enabled": True}, config=CONFIG)
    process.start()
    yield process
    process.close()


@pytest.fixture(scope="module")
def done(broker: BrokerProcess) -> Done:
    """A day at work; the broker stops after it, which closes its last minute, and starts again."""
    done = Done()
    with Client("127.0.0.1", broker.mqtt_port) as client:
        parts = client.queue("parts")
        for kind, count in PARTS.items():
            for number in range(count):
                parts.publish(f"{kind} {number}", key=f"{kind} {number}")
                done["enqueued"] += 1
        left = sum(PARTS.values())
        with parts.consume(group="workers") as deliveries:
            while left:
                left -= done.settle(deliveries.get(timeout=WAIT_S))
        for number in range(NOTES):
            client.queue("notes").publish(f"note {number}")
    broker.restart()
    return done


@pytest.fixture(scope="module")
def tables(
    broker: BrokerProcess, done: Done, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What `--json` has, and where the page is."""
    folder = tmp_path_factory.mktemp("lake")
    uri = f"grpc://127.0.0.1:{broker.flight_port}"
    lake = LakeUnderTest(folder / "lake", spark, uri, read_api_key(broker.data_dir))
    lake.archive()
    options = report.Options(folder / "report.html", "Parts & notes", queue="$queue/*")
    summary = report.run(lake.context("report"), options)
    return summary.tables | {"file": options.out}


@pytest.mark.rule("acceptance 19")
def test_acceptance_19_numbers_equal_a_direct_count(tables: dict[str, Any], done: Done) -> None:
    dead = PARTS["broken"] + PARTS["hopeless"]
    queues = {row["queue"]: row for row in tables["queues"]}
    assert set(queues) == {"$queue/parts", "$queue/notes", "$queue/dlq/parts"}
    parts = queues["$queue/parts"]
    for name in ("enqueued", "delivered", "acked"):
        assert parts[name] == done[name], name
    assert parts["retried"] == done["nacked"]
    assert (parts["dead_lettered"], parts["depth"]) == (dead, 0)
    assert 0 < parts["latency_p50_ms"] <= parts["latency_p99_ms"]
    notes = queues["$queue/notes"]
    assert (notes["enqueued"], notes["delivered"], notes["depth"]) == (NOTES, 0, NOTES)
    letters = queues["$queue/dlq/parts"]
    assert (letters["enqueued"], letters["depth"]) == (dead, dead)
    assert letters["latency_p99_ms"] is None  # nothing of it was delivered


@pytest.mark.rule("acceptance 19")
def test_acceptance_19_totals_and_hours_are_sums(tables: dict[str, Any]) -> None:
    for table in (tables["queues"], tables["hours"]):
        for name in ("delivered", "acked", "retried", "dead_lettered", "dropped"):
            assert tables["totals"][name] == sum(row[name] for row in table), name
        # A dead letter came in once.
        came = [row["enqueued"] for row in table if row["queue"] != "$queue/dlq/parts"]
        assert tables["totals"]["enqueued"] == sum(came)


@pytest.mark.rule("acceptance 19")
def test_acceptance_19_dead_letters_have_their_reasons(tables: dict[str, Any]) -> None:
    found = {(one["queue"], one["reason"]): one["count"] for one in tables["dead_letters"]}
    assert found == {
        ("$queue/parts", "rejected"): PARTS["broken"],
        ("$queue/parts", "max_retries"): PARTS["hopeless"],
    }


@pytest.mark.rule("acceptance 19")
def test_acceptance_19_the_page_of_a_real_lake_opens_in_a_browser(
    tables: dict[str, Any], done: Done, browser_page: Page
) -> None:
    problems: list[str] = []
    browser_page.on("console", lambda message: problems.append(message.text))
    browser_page.on("requestfailed", lambda request: problems.append(request.url))
    page: Path = tables["file"]
    browser_page.goto(page.as_uri())
    assert browser_page.title() == "Parts & notes"
    assert browser_page.inner_text("#delivered") == str(done["delivered"])
    assert browser_page.inner_text("#acked") == str(done["acked"])
    shown = browser_page.locator("#queues tbody tr").all_inner_texts()
    counts = {row.split("\t")[0]: row.split("\t")[1:4] for row in shown}
    assert counts["$queue/parts"] == [
        str(done[name]) for name in ("enqueued", "delivered", "acked")
    ]
    reasons = browser_page.locator("#dead_letters tbody tr").all_inner_texts()
    assert f"$queue/parts\trejected\t{PARTS['broken']}" in reasons
    assert problems == []
