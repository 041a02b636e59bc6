"""`queuelake pipeline`: what is done to messages in bulk, on Spark."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Queues as tables: archive, query, replay and report, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
