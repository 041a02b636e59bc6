"""The data pipeline: what the lake does not have yet, and jobs, to start and to stop."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.job_form import job_form
from queuelake.admin.console.listing import ROWS_PER_PAGE, Action, Listing, Nothing, Row, keep_fresh
from queuelake.admin.console.shell import link_to, page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_pipeline import ArchivedQueue, ArchiveLag
from queuelake.flight import JobTold

REFRESH_S = 2.0
STATES = {"running": "info", "done": "good", "failed": "bad", "cancelled": "plain", "lost": "warn"}


@page("/pipeline", "Pipeline", icon="waves", section="Data")
async def pipeline(visit: Visit) -> None:
    async def started() -> None:
        await jobs.restart()

    with widgets.title("Pipeline", "The archive of queues in the lake, and jobs on Spark"):
        ui.space()
        if visit.may(Services.start_job):
            start = ui.button("Start a job", icon="play_arrow")
            start.props("no-caps unelevated").on_click(lambda: job_form(visit, started))
    archive = _Archive(visit)
    jobs = _jobs(visit)
    await archive.refresh()
    await jobs.restart()
    keep_fresh(REFRESH_S, jobs.refresh)
    keep_fresh(REFRESH_S, archive.refresh)


class _Archive:
    """How far behind the lake is, in all and queue by queue."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._lag = ArchiveLag([], 0, 0, "reject", False)
        self._alarm = widgets.Banner()
        with ui.element("div").classes("ql-tiles"):
            self._behind = widgets.Tile("Not in the lake yet")
            self._oldest = widgets.Tile("Oldest of them")
            self._held = widgets.Tile("Kept for the archive")
            self._commit = widgets.Tile("Last commit")
        with widgets.card("Archived queues", "those with archive = true"):
            self._queues = Listing(
                [
                    Column("queue", "Queue", link="href"),
                    Column("behind", "Behind", number=True),
                    Column("oldest", "Oldest", exact="oldest_exact"),
                    Column("held", "Kept for it", number=True, minor=True),
                    Column("lost", "Lost", number=True, minor=True),
                ],
                self._fetch,
                Nothing(
                    "waves", "No queue is archived", "Set archive = true for a queue to keep it."
                ),
                key="queue",
            )

    async def refresh(self) -> None:
        self._lag = lag = await self._visit.look(Services.archive_lag)
        behind = sum(one.behind for one in lag.queues)
        oldest_ms = min((one.oldest_ms for one in lag.queues if one.oldest_ms), default=0)
        self._behind.set(human.count(behind), f"{behind:,} messages")
        self._oldest.set(human.ago(oldest_ms) or "—", human.moment(oldest_ms))
        self._held.set(
            human.size(lag.held_bytes), note=f"of at most {human.size(lag.hold_bytes_max)}"
        )
        self._commit.set(human.ago(lag.last_commit_ms) or "—", human.moment(lag.last_commit_ms))
        if lag.alarm:
            self._alarm.show("The archive is nearly full", [_full(lag)])
        else:
            self._alarm.hide()
        await self._queues.refresh()

    async def _fetch(self, _cursor: str) -> tuple[list[Row], str | None]:
        return [_queue_row(one) for one in self._lag.queues], None


def _full(lag: ArchiveLag) -> str:
    then = "publishes are refused" if lag.hold == "reject" else "the oldest messages are dropped"
    held, limit = human.size(lag.held_bytes), human.size(lag.hold_bytes_max)
    return f"{held} of {limit} are kept for it; at the limit {then}. Start an archive job."


def _queue_row(one: ArchivedQueue) -> Row:
    return {
        "queue": one.queue,
        "href": link_to("/queue", name=one.queue),
        "behind": human.count(one.behind),
        "oldest": human.ago(one.oldest_ms or 0),
        "oldest_exact": human.moment(one.oldest_ms or 0),
        "held": human.size(one.held_bytes),
        "lost": human.count(one.lost),
        "lost_class": "ql-chip ql-chip-bad" if one.lost else "",
    }


def _jobs(visit: Visit) -> Listing:
    async def fetch(cursor: str) -> tuple[list[Row], str | None]:
        found = await visit.look(Services.jobs, ROWS_PER_PAGE, cursor)
        return [_job_row(one) for one in found.items], found.next

    async def cancel(row: Row) -> None:
        words = "It stops within seconds, and goes on from there when it is started with its id."
        if await widgets.confirm(f"Stop {row['id']}?", words, action="Stop"):
            await visit.do(Services.cancel_job, row["id"])
            widgets.say(f"{row['id']} was told to stop")
            await listing.refresh()

    actions = []
    if visit.may(Services.cancel_job):
        actions = [Action("cancel", "Stop", cancel, danger=True, offered="running")]
    with widgets.card("Jobs"):
        listing = Listing(
            [
                Column("id", "Job"),
                Column("state", "State"),
                Column("progress", "Progress"),
                Column("message", "Says", minor=True),
                Column("started", "Started", exact="started_exact", minor=True),
            ],
            fetch,
            Nothing("schedule", "No job has run yet", "Jobs of the command line appear here too."),
            key="id",
            actions=actions,
            on_row=_show,
        )
        listing.add_cell("progress", _PROGRESS)
    return listing


_PROGRESS = """<q-td :props="props"><div class="ql-progress">
    <q-linear-progress v-if="props.row.share != null" :value="props.row.share" rounded size="6px"
      :color="props.row.running ? 'primary' : 'grey-6'" :aria-label="props.row.progress" />
    <q-linear-progress v-else-if="props.row.running" indeterminate rounded size="6px"
      aria-label="running" /><span>{{ props.row.progress }}</span></div></q-td>"""


def _job_row(one: JobTold) -> Row:
    progress = f"{one.done:,}"
    if one.total:
        progress = f"{one.done:,} of {one.total:,}"
    return {
        "id": one.id,
        "state": one.state,
        "state_class": f"ql-chip ql-chip-{STATES[one.state]}",
        "running": one.state == "running",
        "share": min(1.0, one.done / one.total) if one.total else None,
        "progress": f"{progress} {one.unit}" if one.done or one.total else "",
        "message": one.message,
        "started": human.ago(one.started_ms),
        "started_exact": human.moment(one.started_ms),
        "kind": one.kind,
        # Lists in a row are no cells: they are shown in the dialog only.
        "detail": dict(one.detail),
    }


def _show(row: Row) -> None:
    with widgets.form(row["id"], row["kind"]) as dialog:
        widgets.facts(
            [
                ("State", row["state"]),
                ("Progress", row["progress"]),
                ("Says", row["message"]),
                ("Started", row["started_exact"]),
                *row["detail"].items(),
            ]
        )
        with ui.row().classes("ql-buttons"):
            ui.button("Close", on_click=dialog.close).props("flat no-caps")
