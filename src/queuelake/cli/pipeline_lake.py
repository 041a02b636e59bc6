"""`queuelake pipeline archive`, `compact`, `retain` and `reprocess`: keeping the lake."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from queuelake.cli.pipeline_options import Job, job_command


def add_to(app: typer.Typer) -> None:
    job_command(app, "archive", ARCHIVE)(archive)
    job_command(app, "compact", COMPACT)(compact)
    job_command(app, "retain", RETAIN)(retain)
    job_command(app, "reprocess", REPROCESS)(reprocess)


Pattern = Annotated[
    str, typer.Option("--queue", metavar="PATTERN", help="Which queues, with * and ?.")
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="For another job which changes the lake."
    ),
]
WAIT_S = 600.0

ARCHIVE = """
Examples:

  queuelake pipeline archive --data-dir data             until it is stopped
  queuelake pipeline archive --once --data-dir data      what there is now
  queuelake pipeline archive --once --queue '$queue/orders'

Run it again whenever you like, also twice at a time: rows are neither doubled nor left out.
"""


def archive(
    once: Annotated[
        bool, typer.Option("--once", help="End when what is there now is archived.")
    ] = False,
    queue: Pattern = "*",
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks.")
    ] = 10.0,
    rows_max: Annotated[
        int, typer.Option("--rows-max", metavar="N", min=1, help="Rows of a table in one commit.")
    ] = 1_000_000,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Take the place of the lake the broker knows so far."),
    ] = False,
    wait: Wait = WAIT_S,
) -> Job:
    """Queues into the lake: messages, events and stats, exactly once."""
    from queuelake.pipeline.jobs import archive as job

    options = job.Options(once, interval, rows_max, queue, adopt, wait)
    return partial(job.run, options=options)


COMPACT = """
Examples:

  queuelake pipeline compact --data-dir data
  queuelake pipeline compact --keep 1d --data-dir data

Once a day is often enough. A run which is stopped has done what it has done; the next goes on.
"""


def compact(
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="Merge files up to this size.")
    ] = "128MiB",
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="AGE", help="How far back old versions can be read."),
    ] = "7d",
    wait: Wait = WAIT_S,
) -> Job:
    """Last values into current, small files into large ones, old versions away."""
    from queuelake.pipeline.jobs import compact as job

    hours = round(_duration_s(keep, "--keep") / 3600)
    options = job.Options(_size(file_size, "--file-size"), hours, wait)
    return partial(job.run, options=options)


RETAIN = """
Examples:

  queuelake pipeline retain --older-than 365d --data-dir data
  queuelake pipeline retain --older-than 30d --queue '$queue/logs/*'
  queuelake pipeline retain --erase-key customer-17

An erased key is gone from every table, also from earlier versions. --older-than does not touch
what is younger, whatever the queue.
"""


def retain(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Delete rows older than this: 90d.")
    ] = "",
    erase_key: Annotated[
        list[str] | None,
        typer.Option(
            "--erase-key", metavar="KEY", help="Erase a key, device or vehicle; may be repeated."
        ),
    ] = None,
    queue: Pattern = "*",
    wait: Wait = WAIT_S,
) -> Job:
    """Delete what is old, erase keys for good, and say what went."""
    from queuelake.pipeline.jobs import retain as job

    if not (older_than or erase_key):
        raise typer.BadParameter("give --older-than AGE, or --erase-key KEY, or both")
    older_than_s = _duration_s(older_than, "--older-than") if older_than else None
    options = job.Options(older_than_s, list(erase_key or []), queue, wait)
    return partial(job.run, options=options)


REPROCESS = """
Examples:

  queuelake pipeline reprocess --data-dir data
  queuelake pipeline reprocess --queue '$queue/telemetry'

Rows which fit the schema their queue has now move from quarantine to messages, each once.
"""


def reprocess(queue: Pattern = "*", wait: Wait = WAIT_S) -> Job:
    """Rows of quarantine whose schema was mended go to messages."""
    from queuelake.pipeline.jobs import reprocess as job

    return partial(job.run, options=job.Options(queue, wait))


def _duration_s(text: str, option: str) -> float:
    from queuelake.config_types import parse_duration

    try:
        return parse_duration(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _size(text: str, option: str) -> int:
    from queuelake.config_types import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
