"""`queuelake pipeline`: what is done to messages in bulk, on Spark. One command for each job.

A command checks its options and returns the job; `job_command` adds the options all have in common
and runs it.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from queuelake.cli import pipeline_lake
from queuelake.cli.pipeline_options import Job, job_command

EPILOG = """
Examples:

  queuelake pipeline archive --once --data-dir data      queues into the lake
  queuelake pipeline report --data-dir data --out report.html
  queuelake pipeline replay --queue '$queue/orders' --to '$queue/orders' --where "key = 'k1'"
  queuelake pipeline redrive --queue '$queue/dlq/orders' --where "reason = 'max_retries'"
  queuelake pipeline fanout --from fleet.csv --id-column vin --request map_7 --data map.bin
  queuelake pipeline run pipelines.toml

They need the extra spark: pip install 'queuelake\\[spark]'. Ctrl-C stops a job cleanly; it says
how to continue. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped.
"""

app = typer.Typer(
    help="Queues as tables: archive, query, replay and report, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
pipeline_lake.add_to(app)

Where = Annotated[str, typer.Option("--where", metavar="SQL", help="A condition on the rows.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; send nothing.")]


@job_command(
    app,
    "replay",
    """
Examples:

  queuelake pipeline replay --queue '$queue/orders' --to '$queue/orders' --dry-run
  queuelake pipeline replay --queue '$queue/orders' --to '$queue/test' --rate 500
      --where "ts >= '2026-01-31' AND properties['region'] = 'north'" --order-by 'key, ts'

The columns are those of the table messages. A message gets the id replay:JOB:N and the property
original-ts. A replay which was stopped continues with the same options and --job-id.
""",
)
def replay(
    queue: Annotated[str, typer.Option("--queue", metavar="QUEUE", help="Whose rows in the lake.")],
    to: Annotated[str, typer.Option("--to", metavar="QUEUE", help="The queue they go to.")],
    where: Where = "",
    order_by: Annotated[
        str, typer.Option("--order-by", metavar="SQL", help="In which order they are sent.")
    ] = "ts",
    rate: Annotated[
        float,
        typer.Option(
            "--rate", metavar="N", help="Rows a second.", show_default="as fast as it goes"
        ),
    ] = 0.0,
    dry_run: DryRun = False,
) -> Job:
    """Send rows of the lake to a queue, in order, each once."""
    from queuelake.pipeline.jobs import replay as job

    options = job.Options(queue, to, where, order_by, rate, dry_run)
    return partial(job.run, options=options)


@job_command(
    app,
    "redrive",
    """
Examples:

  queuelake pipeline redrive --queue '$queue/dlq/orders' --dry-run
  queuelake pipeline redrive --queue '$queue/dlq/orders' --where "reason = 'max_retries'"
  queuelake pipeline redrive --queue '$queue/dlq/orders' --where "reason_text LIKE '%currency%'"
      --set-payload "replace(string(payload), 'EURO', 'EUR')"

Columns: those of messages, and reason, reason_text, original_queue, consumer_group,
delivery_count, first_attempt. The lake keeps a row for each message in its table redrives.
""",
)
def redrive(
    queue: Annotated[
        str, typer.Option("--queue", metavar="QUEUE", help="The queue of dead letters.")
    ],
    where: Where = "",
    set_payload: Annotated[
        str, typer.Option("--set-payload", metavar="SQL", help="The payload to send instead.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="Another queue.",
            show_default="where each of them came from",
        ),
    ] = "",
    dry_run: DryRun = False,
) -> Job:
    """Send dead letters back to their queue; they leave the dead letters in the same commit."""
    from queuelake.pipeline.jobs import redrive as job

    options = job.Options(queue, where, set_payload, to, dry_run)
    return partial(job.run, options=options)


@job_command(
    app,
    "fanout",
    """
Examples:

  queuelake pipeline fanout --from fleet.parquet --id-column vin --request map_7 --data map.bin
  queuelake pipeline fanout --sql "SELECT vin FROM fleet WHERE model = 'T4'" --table fleet=fleet.csv
      --id-column vin --request ota_2 --data-id fw-2.4 --watch
  queuelake pipeline fanout --request map_7 --cancel --from recalled.csv --id-column vin

Files are Parquet, CSV with a header, JSON lines or Delta. Each id counts once. A second run with
the same --job-id adds nothing.
""",
)
def fanout(
    request: Annotated[str, typer.Option("--request", metavar="ID", help="The request id.")],
    source: Annotated[
        str, typer.Option("--from", metavar="PATH", help="A file or table with the ids.")
    ] = "",
    sql: Annotated[str, typer.Option("--sql", metavar="QUERY", help="A query with the ids.")] = "",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME=PATH", help="A table of --sql; may be repeated."),
    ] = None,
    id_column: Annotated[
        str, typer.Option("--id-column", metavar="NAME", help="The column which has the ids.")
    ] = "id",
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="The payload.", dir_okay=False)
    ] = None,
    data_id: Annotated[
        str,
        typer.Option(
            "--data-id",
            metavar="ID",
            help="Its id, or that of data which was published.",
            show_default="the SHA-1 of --data",
        ),
    ] = "",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Call the request off, for these ids or for all.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until nobody waits.")] = False,
) -> Job:
    """One payload for every vehicle of a table, in one commit."""
    from queuelake.pipeline.jobs import fanout as job

    options = job.Options(
        request=request,
        source=source,
        sql=sql,
        tables=dict(_named_path(pair) for pair in table or []),
        id_column=id_column,
        data=data,
        data_id=data_id,
        cancel=cancel,
        watch=watch,
    )
    return partial(job.run, options=options)


@job_command(
    app,
    "report",
    """
Examples:

  queuelake pipeline report --data-dir data
  queuelake pipeline report --since 24h --queue '$queue/orders*' --out orders.html
  queuelake pipeline report --since 2026-01-01 --until 2026-02-01 --title 'January' --json

The page is one file without anything from elsewhere. --json has its tables.
""",
)
def report(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file.")] = Path(
        "report.html"
    ),
    queue: Annotated[
        str, typer.Option("--queue", metavar="PATTERN", help="Which queues, with * and ?.")
    ] = "*",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="ISO 8601 (UTC), or ago: 30m, 24h, 7d.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="The end, likewise.")] = "",
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="What stands above it.")
    ] = "Queue report",
) -> Job:
    """What the queues did: throughput, latency, failures and depth, as a page with charts."""
    from queuelake.pipeline.jobs import report as job

    options = job.Options(out, title, queue, _time(since, "--since"), _time(until, "--until"))
    return partial(job.run, options=options)


@job_command(
    app,
    "run",
    """
Examples:

  queuelake pipeline run alerts.toml --data-dir data
  queuelake pipeline run pipelines.sql --only alerts --check

A file declares sources, queries and a sink, one pipeline or several; docs/pipeline explains it.
""",
)
def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .toml or .sql file.", exists=True, dir_okay=False),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this pipeline; may be repeated."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only read the file.")] = False,
) -> Job:
    """Run pipelines of your own: queues and tables, SQL, queues and files."""
    from queuelake.pipeline.jobs import run as job

    options = job.Options(file, tuple(only or ()), check)
    options.pipelines()  # its mistakes, before anything is started
    return partial(job.run, options=options)


def _named_path(pair: str) -> tuple[str, str]:
    name, equals, path = pair.partition("=")
    if not (name.isidentifier() and equals and path):
        raise typer.BadParameter(f"{pair!r} is not NAME=PATH", param_hint="--table")
    return name, path


def _time(text: str, option: str) -> datetime | None:
    from queuelake.config_types import parse_duration

    if not text:
        return None
    with contextlib.suppress(ValueError):
        return datetime.now(UTC) - timedelta(milliseconds=parse_duration(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        allowed = "allowed: ISO 8601, or ago: 30m, 24h, 7d"
        raise typer.BadParameter(f"{text!r}; {allowed}", param_hint=option) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
