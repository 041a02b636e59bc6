"""What the commands of `queuelake pipeline` have in common: their options, and how a job is run.

`job_command` adds the common options to those of a command, so that each of them stands here once.
Defaults come from the data directory of a broker on this machine: its lake, its API key, and the
address its Flight service has now. Another broker is named with --url, and then its lake as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.options import (
    Assignments,
    Config,
    DataDir,
    Values,
    shared,
    with_options,
)
from queuelake.cli.reading import read_settings
from queuelake.errors import QueuelakeError

if TYPE_CHECKING:
    from queuelake.pipeline.jobs.job import JobContext, Place, Summary
    from queuelake.settings import Settings

TOKEN_VARIABLE = "QUEUELAKE_TOKEN"
URL_VARIABLE = "QUEUELAKE_FLIGHT_URI"
LAKE_VARIABLE = "QUEUELAKE_LAKE"
STATUS_TIMEOUT_S = 5.0
PANEL = "Where and how"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar=URL_VARIABLE,
        help="The Flight service, flight://HOST:PORT or flight+tls://HOST:PORT.",
        show_default="of the broker of --data-dir",
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="KEY:SECRET",
        envvar=TOKEN_VARIABLE,
        help="The API key.",
        show_default="that of --data-dir",
        rich_help_panel=PANEL,
    ),
]
TlsCa = Annotated[
    str,
    typer.Option(
        "--tls-ca", metavar="FILE", help="Who signed the service's key.", rich_help_panel=PANEL
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="URI",
        envvar=LAKE_VARIABLE,
        help="Where the tables are.",
        show_default="lake.path",
        rich_help_panel=PANEL,
    ),
]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="The Spark master.", rich_help_panel=PANEL),
]
Remote = Annotated[
    str,
    typer.Option(
        "--remote",
        metavar="sc://HOST",
        help="A Spark Connect server, instead of a master.",
        rich_help_panel=PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark; may be repeated.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
JobId = Annotated[
    str,
    typer.Option(
        "--job-id",
        metavar="ID",
        help="Names the run; one which was stopped continues under its id.",
        show_default="a new one",
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout.", rich_help_panel=PANEL)]

Job = Callable[["JobContext"], "Summary"]


def common(
    url: Url = None,
    token: Token = None,
    tls_ca: TlsCa = "",
    lake: Lake = None,
    config: Config = None,
    data_dir: DataDir = None,
    assignments: Assignments = None,
    master: Master = "local[*]",
    remote: Remote = "",
    conf: Conf = None,
    job_id: JobId = "",
    as_json: Json = False,
) -> None:
    """The options which every command has; only its signature is used."""


COMMON = shared(common)


def job_command(app: typer.Typer, kind: str, epilog: str) -> Callable[[Callable[..., Job]], None]:
    """Make a command of a function which takes its own options and returns the job to be run.

    What is wrong with options and configuration is told before Spark is started.
    """

    def decorate(function: Callable[..., Job]) -> None:
        def run(own: Values, others: Values) -> None:
            raise typer.Exit(_run(kind, function, own, others))

        app.command(kind, epilog=epilog)(with_options(function, COMMON, run))

    return decorate


def _run(kind: str, function: Callable[..., Job], own: Values, common: Values) -> int:
    _need_spark()
    from queuelake.pipeline.jobs.job import JobContext, run_job
    from queuelake.pipeline.jobs.journal import keep_outcome
    from queuelake.pipeline.jobs.progress import view_for
    from queuelake.pipeline.jobs.telling import broker_teller

    place = find_place(**{name: common[name] for name in COMMON if name not in OF_THE_RUN})
    job = function(**own)  # refuses wrong options before anything is started
    context = JobContext(kind, place, str(common["job_id"]))
    view = view_for(kind, context.id, bool(common["as_json"]))
    try:
        return run_job(context, job, view, broker_teller(place), partial(keep_outcome, context))
    finally:
        context.close()


OF_THE_RUN = frozenset({"job_id", "as_json"})


def _need_spark() -> None:
    from queuelake.pipeline.session import need_spark

    need_spark()


def find_place(
    url: str | None,
    token: str | None,
    tls_ca: str,
    lake: str | None,
    config: str | None,
    data_dir: str | None,
    assignments: list[str] | None,
    master: str,
    remote: str,
    conf: list[str] | None,
) -> Place:
    """Where the job works, by its options and else by the data directory."""
    from queuelake.pipeline.jobs.job import Place

    settings = read_settings(config, data_dir, assignments)
    here = url is None or data_dir is not None or config is not None
    if lake is None:
        # The lake of another machine's broker is not to be guessed.
        lake = settings.lake.path or str(Path(settings.data_dir) / "lake") if here else ""
    return Place(
        url=url or _flight_url(settings),
        token=token or _api_key(settings),
        lake=lake if "://" in lake or not lake else os.path.abspath(lake),
        tls_ca=tls_ca,
        master="" if remote else master,
        remote=remote,
        conf=_pairs(conf or []),
    )


def _pairs(conf: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in conf:
        key, equals, value = pair.partition("=")
        if not (key.strip() and equals):
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--conf")
        pairs[key.strip()] = value.strip()
    return pairs


def _flight_url(settings: Settings) -> str:
    """Where the broker of this data directory serves Flight now, else where it is set to."""
    from queuelake.control_client import call

    try:
        status = call(Path(settings.data_dir), "status", {}, STATUS_TIMEOUT_S)
    except QueuelakeError:
        status = {}
    addresses = status.get("addresses", {}) if isinstance(status, dict) else {}
    flight = settings.flight
    scheme = "flight+tls" if flight.certificate else "flight"
    return str(addresses.get("flight", f"{scheme}://{flight.bind}:{flight.port}"))


def _api_key(settings: Settings) -> str:
    """The key of this data directory; without one the service says what is missing."""
    from queuelake.apikey import read_api_key

    try:
        return read_api_key(Path(settings.data_dir))
    except QueuelakeError:
        return ""
