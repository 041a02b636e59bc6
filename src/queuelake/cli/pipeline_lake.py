"""`queuelake pipeline archive`, `compact`, `retain` and `reprocess`: keeping the lake."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from queuelake.cli.pipeline_options import Job, job_command


def add_to(app: typer.Typer) -> None:
    job_command(app, "archive", ARCHIVE)(archive)


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
    queue: Annotated[
        str, typer.Option("--queue", metavar="PATTERN", help="Which queues, with * and ?.")
    ] = "*",
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
) -> Job:
    """Queues into the lake: messages, events and stats, exactly once."""
    from queuelake.pipeline.jobs import archive as job

    options = job.Options(
        once=once, interval_s=interval, rows_max=rows_max, queue=queue, adopt=adopt
    )
    return partial(job.run, options=options)
