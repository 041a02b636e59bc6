"""`queuelake sdv`: follow what is fanned out to vehicles, and cancel it. JSON on stdout."""

from __future__ import annotations

from typing import Annotated

import typer

from queuelake.cli.asking import (
    AsJson,
    Asker,
    Which,
    WhichConfig,
    print_config,
    print_garbage_collection,
)
from queuelake.cli.options import Assignments, Config, DataDir
from queuelake.cli.showing import print_json

EPILOG = """
Examples:

  queuelake sdv status --data-dir data
  queuelake sdv inspect VIN1
  queuelake sdv request task_ota_1
  queuelake sdv cancel task_ota_1 VIN1 VIN2

They ask the running broker: use the same --config or --data-dir as for serve.
"""

app = typer.Typer(
    help="Vehicle fan-out, $SDV-FANOUT: what waits for vehicles, and what became of it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Vin = Annotated[str, typer.Argument(metavar="VIN", help="The vehicle: its client id.")]
Vins = Annotated[
    list[str] | None,
    typer.Argument(metavar="VIN", help="Only of these vehicles.", show_default="all"),
]
RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="The request_id of a trigger.")]


@app.command()
def status(
    config: Config = None, data_dir: DataDir = None, assignments: Assignments = None
) -> None:
    """How much waits for vehicles, and what it takes of the store."""
    print_json(Asker(config, data_dir, assignments).ask("sdv_status"))


@app.command()
def inspect(
    vin: Vin, config: Config = None, data_dir: DataDir = None, assignments: Assignments = None
) -> None:
    """What waits for one vehicle, and what is on its way to it."""
    print_json(Asker(config, data_dir, assignments).ask("sdv_inspect", vin=vin))


@app.command()
def request(
    request_id: RequestId,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """How far a request has come: pending, in flight, acknowledged, rejected, expired."""
    print_json(Asker(config, data_dir, assignments).ask("sdv_request", request_id=request_id))


@app.command()
def cancel(
    request_id: RequestId,
    vins: Vins = None,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """Cancel what was not sent yet of a request, for every vehicle or for some."""
    asker = Asker(config, data_dir, assignments)
    print_json(asker.ask("sdv_cancel", request_id=request_id, vins=vins or []))


@app.command()
def gc(config: Config = None, data_dir: DataDir = None, assignments: Assignments = None) -> None:
    """Begin to delete what is too old."""
    print_garbage_collection(Asker(config, data_dir, assignments).ask("sdv_gc"))


@app.command("show-config")
def show_config(
    which: WhichConfig = Which.inuse,
    as_json: AsJson = False,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
) -> None:
    """The settings the running broker uses, changes at run time included."""
    answer = Asker(config, data_dir, assignments).ask("sdv_config")
    print_config("sdv", answer, which, as_json)
