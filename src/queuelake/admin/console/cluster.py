"""The cluster: its nodes, who owns it, its logs, and what an admin changes about them."""

from __future__ import annotations

from nicegui import ui

from queuelake.admin.console import human, widgets
from queuelake.admin.console.listing import Action, Listing, Nothing, Row, keep_fresh
from queuelake.admin.console.shell import page
from queuelake.admin.console.visit import Visit
from queuelake.admin.console.widgets import Column
from queuelake.admin.services import Services
from queuelake.control_cluster import Checked, CheckedShard, ClusterInfo, MemberInfo, ShardInfo

REFRESH_S = 1.0
ROLES = {"owner": "good", "replica": "info", "copying": "warn", "stuck": "bad"}
CUT = "All clients lose their connections and come back; nothing that was confirmed is lost."


def is_node_of_one(visit: Visit) -> bool:
    metrics = visit.sampler.metrics
    return metrics is not None and bool(metrics.cluster)


@page("/cluster", "Cluster", icon="hub", section="Administration", when=is_node_of_one)
async def cluster(visit: Visit) -> None:
    shown = Shown(visit, await visit.do(Services.cluster))
    await shown.listing.restart()
    keep_fresh(REFRESH_S, shown.listing.refresh)


class Shown:
    """The page; `found` is what the node said last."""

    def __init__(self, visit: Visit, found: ClusterInfo) -> None:
        self._visit = visit
        self._found = found
        note = f"{found.name}, as node {found.node} knows it"
        with widgets.title("Cluster", note):
            ui.space()
            if visit.may(Services.drain_node):
                self._add_buttons()
        self._shards = Tiles() if self._is_one_shard else Shards(visit)
        self.listing = Listing(
            [
                Column("node", "Node"),
                Column("role", "Role"),
                *([] if self._is_one_shard else [Column("owns", "Owns")]),
                Column("lag", "Behind", number=True, exact="position"),
                Column("heard", "Heard", minor=True),
                Column("addresses", "Addresses", minor=True),
                Column("version", "Version", minor=True),
                Column("problem", "Problem"),
            ],
            self._fetch,
            Nothing("hub", "No node is heard", "This one has no connection to NATS."),
            key="node",
            actions=self._actions(),
        )

    @property
    def _is_one_shard(self) -> bool:
        return len(self._found.shards) == 1

    def _add_buttons(self) -> None:
        self._drain = ui.button("Drain this node", on_click=self._change_draining)
        buttons = [self._drain, ui.button("Compare stores", on_click=self._check)]
        if not self._is_one_shard:
            buttons.append(ui.button("Spread shards", on_click=self._rebalance))
        for button in buttons:
            button.props("no-caps outline")

    def _actions(self) -> list[Action]:
        if not self._visit.may(Services.transfer_ownership):
            return []
        remove = Action("remove", "Remove", self._remove, danger=True, offered="is_gone")
        if not self._is_one_shard:
            return [remove]
        return [Action("transfer", "Make owner", self._transfer, offered="can_own"), remove]

    async def _fetch(self, _cursor: str) -> tuple[list[Row], str | None]:
        found = self._found = await self._visit.look(Services.cluster)
        await self._shards.show(found.shards)
        if self._visit.may(Services.drain_node):
            self._drain.set_text("End draining" if self._is_draining() else "Drain this node")
        return [_row(one) for one in found.members], None

    def _is_draining(self) -> bool:
        return any(one.node == self._found.node and one.draining for one in self._found.members)

    async def _transfer(self, row: Row) -> None:
        heading = f"Make {row['node']} the owner?"
        if await widgets.confirm(heading, CUT, action="Make it the owner"):
            moved = await self._visit.do(Services.transfer_ownership, row["node"])
            widgets.say(f"The owner is {moved.owner}")
            await self.listing.refresh()

    async def _remove(self, row: Row) -> None:
        words = "It is shown no more. A node which is started again is there again."
        if await widgets.confirm(f"Remove {row['node']}?", words, action="Remove"):
            await self._visit.do(Services.remove_node, row["node"])
            widgets.say(f"{row['node']} is removed")
            await self.listing.refresh()

    async def _change_draining(self) -> None:
        node = self._found.node
        if self._is_draining():
            await self._visit.do(Services.drain_node, False)
            widgets.say(f"{node} may be the owner again")
        else:
            words = f"It does not become the owner until that ends. If it is the owner now:\n{CUT}"
            if not await widgets.confirm(f"Drain {node}?", words, action="Drain"):
                return
            await self._visit.do(Services.drain_node, True)
            widgets.say(f"{node} is drained; it may be stopped")
        await self.listing.refresh()

    async def _rebalance(self) -> None:
        words = f"Shards are moved until all nodes own equally many.\n{CUT}"
        if await widgets.confirm("Spread the shards?", words, action="Spread"):
            moved = (await self._visit.do(Services.rebalance_cluster)).moved
            widgets.say(f"{len(moved)} shards were moved" if moved else "There was nothing to move")
            await self.listing.refresh()

    async def _check(self) -> None:
        words = "Each node reads its whole store once, which takes time when it is large."
        if await widgets.confirm("Compare the stores of all nodes?", words, action="Compare"):
            _show_check(await self._visit.do(Services.check_cluster))


class Tiles:
    """The one shard there is."""

    def __init__(self) -> None:
        with ui.element("div").classes("ql-tiles"):
            self._owner = widgets.Tile("Owner")
            self._epoch = widgets.Tile("Epoch")
            self._lease = widgets.Tile("Lease renewed")
            self._log = widgets.Tile("Log")

    async def show(self, shards: list[ShardInfo]) -> None:
        shard = shards[0]
        self._owner.set(shard.owner or "nobody")
        self._epoch.set(f"{shard.epoch:,}", note="each owner has the next one")
        self._lease.set(f"{human.duration(shard.lease_age_s)} ago")
        entries = f"{shard.log_first:,} to {shard.log_last:,}"
        self._log.set(human.size(shard.log_bytes), f"{shard.log_bytes:,} bytes", entries)


class Shards:
    """A row for each."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._found: list[ShardInfo] = []
        may = visit.may(Services.transfer_ownership)
        self._listing = Listing(
            [
                Column("shard", "Shard", number=True),
                Column("owner", "Owner"),
                Column("epoch", "Epoch", number=True, minor=True),
                Column("lease", "Lease renewed", minor=True),
                Column("log", "Log", number=True, exact="entries"),
            ],
            self._fetch,
            Nothing("hub", "No shards"),
            key="shard",
            actions=[Action("transfer", "Hand on", self._hand_on)] if may else [],
        )

    async def show(self, shards: list[ShardInfo]) -> None:
        self._found = shards
        await self._listing.refresh()

    async def _fetch(self, _cursor: str) -> tuple[list[Row], str | None]:
        return [_shard_row(one) for one in self._found], None

    async def _hand_on(self, row: Row) -> None:
        heading = f"Give shard {row['shard']} to another node?"
        if await widgets.confirm(heading, CUT, action="Hand on"):
            moved = await self._visit.do(Services.transfer_ownership, "", row["shard"])
            widgets.say(f"Shard {moved.shard} is owned by {moved.owner}")


def _shard_row(one: ShardInfo) -> Row:
    return {
        "shard": one.shard,
        "owner": one.owner or "nobody",
        "epoch": f"{one.epoch:,}",
        "lease": f"{human.duration(one.lease_age_s)} ago",
        "log": human.size(one.log_bytes),
        "entries": f"{one.log_first:,} to {one.log_last:,}, {one.log_bytes:,} bytes",
    }


def _show_check(checked: Checked) -> None:
    with widgets.form("All stores are equal" if checked.equal else "The stores differ") as dialog:
        several: list[Checked | CheckedShard] = [*checked.shards]
        for one in several or [checked]:
            where = f"Shard {one.shard}, at" if isinstance(one, CheckedShard) else "At"
            ui.label(f"{where} position {one.position:,} of the log").classes("ql-note")
            widgets.facts([*one.hashes.items(), *((node, "no answer") for node in one.missing)])
        ui.button("Close", on_click=dialog.close).props("flat no-caps")


def _row(one: MemberInfo) -> Row:
    role = one.role if one.alive else "gone"
    words = [role, *(["draining"] if one.draining else [])]
    return {
        "node": one.node,
        "role": ", ".join(words),
        "role_class": f"ql-chip ql-chip-{ROLES.get(role, 'bad')}",
        "lag": f"{one.lag:,}",
        "position": f"at {one.position:,}, synced up to {one.synced:,}",
        "heard": "now" if one.alive else f"{human.duration(one.heard_s)} ago",
        "owns": ", ".join(map(str, one.owns)),
        "addresses": ", ".join(one.addresses),
        "version": one.version,
        "problem": one.problem,
        "can_own": one.alive and one.role == "replica" and not one.draining,
        "is_gone": not one.alive,
    }
