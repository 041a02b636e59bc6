"""The engine on real NATS servers: three of them, which are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from functools import partial

import pytest
import uvloop

from queuelake.cluster.engine import (
    ConflictingWriteError,
    Lease,
    Leases,
    Log,
    TruncatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.errors import ConfigError
from tests.cluster.nats_nodes import Nodes, append_once, patiently, read_all, until
from tests.harness.nats import NatsServers

_clusters = itertools.count()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    with NatsServers(tmp_path_factory.mktemp("nats")) as three:
        yield three


@pytest.fixture
def name() -> str:
    """Each test has a cluster of its own on the same servers."""
    return f"test{next(_clusters)}"


async def open_log(engine: NatsEngine) -> Log:
    return await patiently(lambda: engine.log(0))


async def test_what_is_appended_is_read_by_all(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        logs = [
            await open_log(await nodes.join(servers.urls(index), name, f"n{index}"))
            for index in range(3)
        ]
        assert await logs[0].ends() == (1, 0)
        assert await logs[0].read(1, 10) == []
        assert await logs[0].append([b"a"], 0) == 1
        assert await logs[1].append([b"b", b"", b"d"], 1) == 4
        for log in logs:
            assert await read_all(log) == [b"a", b"b", b"", b"d"]
            assert await log.ends() == (1, 4)
            assert await log.read(5, 1) == []
        assert await logs[2].read(2, 2) == [b"b", b""]
        assert await logs[0].size_bytes() > 0


async def test_an_append_which_does_not_know_the_end_is_refused(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        log = await open_log(await nodes.join(servers.urls(), name))
        assert await log.append([b"a", b"b"], 0) == 2
        for after in (0, 1, 3):
            with pytest.raises(ConflictingWriteError):
                await log.append([b"x", b"y"], after)
        assert await read_all(log) == [b"a", b"b"]


async def test_no_part_slips_in_behind_what_another_one_appended(
    servers: NatsServers, name: str
) -> None:
    """The second part names the position at which somebody else's entry is by now."""
    async with Nodes() as nodes:
        old = await open_log(await nodes.join(servers.urls(0), name, "old"))
        new = await open_log(await nodes.join(servers.urls(1), name, "new"))
        assert await new.append([b"barrier"], 0) == 1
        with pytest.raises(ConflictingWriteError):
            await old.append([b"part 0", b"part 1", b"part 2"], 0)
        assert await new.append([b"next"], 1) == 2
        assert await read_all(new) == [b"barrier", b"next"]


async def test_of_two_who_append_one_wins_each_position(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        logs = [
            await open_log(await nodes.join(servers.urls(index), name, f"n{index}"))
            for index in range(2)
        ]
        won: dict[int, bytes] = {}

        async def append(node: int) -> None:
            after = 0
            while after < 40:
                value = b"%d at %d" % (node, after + 1)
                try:
                    after = await logs[node].append([value], after)
                    assert after not in won
                    won[after] = value
                except ConflictingWriteError:
                    after += 1

        await asyncio.gather(append(0), append(1))
        assert await read_all(logs[0]) == [won[position] for position in range(1, 41)]


async def test_a_part_may_be_as_long_as_the_log_says(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        log = await open_log(await nodes.join(servers.urls(), name))
        parts = [bytes([number]) * log.part_bytes_max for number in range(20)]
        assert await log.append(parts, 0) == 20
        assert await read_all(log) == parts


async def test_what_is_forgotten_is_said_to_be_gone(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        engine = await nodes.join(servers.urls(), name)
        log = await open_log(engine)
        await log.append([b"%d" % number for number in range(1, 10)], 0)
        await log.truncate(4)
        assert await log.ends() == (5, 9)
        await gone(log, 4)
        assert await log.read(5, 1) == [b"5"]
        await log.truncate(1_000)
        assert await log.ends() == (10, 9)
        await gone(log, 9)
        await gone(await open_log(engine), 1)  # one who begins and has seen nothing
        assert await log.append([b"10"], 9) == 10
        await gone(log, 9)
        assert await read_all(log) == [b"10"]


async def gone(log: Log, position: int) -> None:
    """A copy may have it a little longer."""

    async def is_gone() -> bool:
        try:
            await log.read(position, 1)
        except TruncatedError:
            return True
        return False

    await until(is_gone)


async def test_a_copy_which_is_behind_has_it_not_yet(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        writer_at = servers.leader(await a_stream(nodes, servers, name))
        behind = (writer_at + 1) % 3
        log = await open_log(await nodes.join(servers.urls(writer_at), name, "writer"))
        late = await open_log(await nodes.join(servers.urls(behind), name, "late"))
        servers.stop(behind)
        try:
            last = 0
            for number in range(1, 21):
                last = await log.append([b"%d" % number], last)
        finally:
            servers.cont(behind)
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while len(values) < last:
                # Whatever it has: what follows, in order, or nothing; never an error.
                values += await late.read(len(values) + 1, 64)
        assert values == [b"%d" % number for number in range(1, 21)]


async def a_stream(nodes: Nodes, servers: NatsServers, name: str) -> str:
    await open_log(await nodes.join(servers.urls(), name, "maker"))
    return f"QL_{name}_0"


async def test_nothing_acknowledged_is_lost_with_the_leader(
    servers: NatsServers, name: str
) -> None:
    """The owner is connected to the server which is killed: it loses answers with the leader."""
    async with Nodes() as nodes:
        leader = servers.leader(await a_stream(nodes, servers, name))
        log = await open_log(await nodes.join(servers.urls(leader), name, "owner"))
        acknowledged: dict[int, bytes] = {}
        doubts = 0
        killed = False
        enough = asyncio.Event()

        async def append_many() -> None:
            nonlocal doubts
            last, after_kill = 0, 0
            while after_kill < 20:
                value = b"value %d" % (last + 1)
                last, doubt = await append_once(log, value, last)
                acknowledged[last] = value
                doubts += doubt
                after_kill += killed
                if last == 50:
                    enough.set()

        appending = asyncio.create_task(append_many())
        await asyncio.wait_for(enough.wait(), 30)
        servers.kill(leader)
        killed = True
        try:
            await appending
        finally:
            servers.start(leader)
        assert doubts, "the leader was killed between two appends, and nobody noticed"
        found = await read_all(log)
        assert found == [acknowledged[position] for position in sorted(acknowledged)]
        servers.wait_until_ready()
        restarted = await open_log(await nodes.join(servers.urls(leader), name, "again"))

        async def has_caught_up() -> bool:
            return await read_all(restarted) == found

        await until(has_caught_up)


async def open_leases(engine: NatsEngine) -> Leases:
    return await patiently(lambda: engine.leases(0))


async def test_of_two_who_replace_a_lease_one_wins(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        leases = [
            await open_leases(await nodes.join(servers.urls(index), name, f"n{index}"))
            for index in range(3)
        ]
        assert await leases[0].read() == (None, 0)
        revision = 0
        for epoch in range(1, 11):
            wanted = [Lease(epoch, f"n{index}", heir="x") for index in range(3)]
            writes = (one.write(wanted[i], revision) for i, one in enumerate(leases))
            results = await asyncio.gather(*writes, return_exceptions=True)
            (winner,) = (i for i, result in enumerate(results) if isinstance(result, int))
            assert sum(isinstance(one, ConflictingWriteError) for one in results) == 2
            for one in leases:
                lease, revision = await one.read()
                assert lease == wanted[winner]
                assert revision == results[winner]


async def test_without_a_majority_nothing_is_confirmed(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        leader = servers.leader(await a_stream(nodes, servers, name))
        engine = await nodes.join(servers.urls(leader), name)
        log = await open_log(engine)
        assert await log.append([b"a"], 0) == 1
        others = [index for index in range(3) if index != leader]
        for index in others:
            servers.stop(index)
        try:
            with pytest.raises(UnknownOutcomeError):
                await log.append([b"b"], 1)
        finally:
            for index in others:
                servers.cont(index)

        async def is_appended() -> bool:
            return await patiently(lambda: log.read(2, 1)) == [b"b"]

        await until(is_appended)  # it was proposed, and comes true with a majority


async def test_messages_come_in_order_and_to_all_who_receive(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        engines = [await nodes.join(servers.urls(i), name, f"n{i}") for i in range(3)]
        received: list[list[bytes]] = [[], [], []]
        for index, engine in enumerate(engines):
            await engine.messenger.receive("news", received[index].append)
        assert engines[0].messenger.node == "n0"
        sent = [b"%d" % number for number in range(500)]
        sent.append(bytes(engines[0].messenger.payload_bytes_max))

        # What is subscribed at one server is known to the others a moment later.
        async def all_hear() -> bool:
            engines[0].messenger.send("news", b"hello")
            return all(received)

        async def all_have_the_last() -> bool:
            return all(sent[-1] in one for one in received)

        await until(all_hear)
        for value in sent:
            engines[0].messenger.send("news", value)
        await until(all_have_the_last)
        for one in received:
            assert [value for value in one if value != b"hello"] == sent


async def test_a_receiver_which_fails_gets_the_next_message(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        engine = await nodes.join(servers.urls(), name)
        done = asyncio.Event()

        def receive(data: bytes) -> None:
            if data == b"bad":
                raise ValueError(data)
            done.set()

        await engine.messenger.receive("news", receive)
        engine.messenger.send("news", b"bad")
        engine.messenger.send("news", b"good")
        await asyncio.wait_for(done.wait(), 10)


async def test_who_left_is_not_there(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        here = await nodes.join(servers.urls(0), name, "here")
        there = await nodes.join(servers.urls(1), name, "there")
        await until(partial(here.messenger.is_there, "there"))  # servers tell each other of nodes
        await until(partial(there.messenger.is_there, "here"))
        assert not await here.messenger.is_there("nobody")
        await there.close()

        async def is_gone() -> bool:
            return not await here.messenger.is_there("there")

        await until(is_gone)


async def test_a_name_belongs_to_one_node(servers: NatsServers, name: str) -> None:
    async with Nodes() as nodes:
        await nodes.join(servers.urls(0), name, "same")
        with pytest.raises(ConfigError, match='node = "same": another node has this name'):
            await nodes.join(servers.urls(1), name, "same")


async def test_of_several_which_come_at_once_one_has_the_name(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        joined = [nodes.join(servers.urls(index), name, "same") for index in range(3)]
        ends = await asyncio.gather(*joined, return_exceptions=True)
        refused = [str(one) for one in ends if isinstance(one, ConfigError)]
        assert len(refused) == 2, ends
        assert all('node = "same": another node has this name' in one for one in refused)


async def test_a_killed_server_is_left_for_another_and_nothing_stale_is_sent(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        engine = await nodes.join(servers.urls(0), name, "here")
        log = await open_log(engine)
        other = await nodes.join(servers.urls(1), name, "other")
        received: list[bytes] = []
        await engine.messenger.receive("news", received.append)
        changes: asyncio.Queue[bool] = asyncio.Queue()
        engine.on_connection = changes.put_nowait
        servers.kill(0)
        try:
            assert await asyncio.wait_for(changes.get(), 10) is False
            assert not engine.connected
            engine.messenger.send("news", b"stale")
            with pytest.raises(UnknownOutcomeError, match="no connection"):
                await log.append([b"stale"], 0)
            with pytest.raises(UnavailableError):
                await log.read(1, 1)
            assert await engine.messenger.is_there("other"), "not known is not gone"
            assert await asyncio.wait_for(changes.get(), 10) is True
            assert engine.connected

            async def receives_again() -> bool:
                other.messenger.send("news", b"fresh")
                return bool(received)

            await until(receives_again)
            assert b"stale" not in received
            assert await append_once(log, b"a", 0) in ((1, True), (1, False))
        finally:
            servers.start(0)
        servers.wait_until_ready()


async def test_a_server_which_hangs_is_left_though_its_connection_is_open(
    servers: NatsServers, name: str
) -> None:
    async with Nodes() as nodes:
        engine = await nodes.join(servers.urls(0), name, "here")
        other = await nodes.join(servers.urls(1), name, "other")
        received: list[bytes] = []
        await other.messenger.receive("news", received.append)
        changes: asyncio.Queue[bool] = asyncio.Queue()
        engine.on_connection = changes.put_nowait
        servers.stop(0)
        try:
            for _ in range(32):  # more than the kernel takes, so that a close would wait for ever
                engine.messenger.send("news", bytes(engine.messenger.payload_bytes_max))
                await asyncio.sleep(0)  # some are given to the socket, the rest has to wait
            assert await asyncio.wait_for(changes.get(), 30) is False
            assert await asyncio.wait_for(changes.get(), 30) is True

            async def is_heard_again() -> bool:
                engine.messenger.send("news", b"fresh")
                return bool(received)

            await until(is_heard_again)
            assert set(received) == {b"fresh"}, "what was not sent is stale"
        finally:
            servers.cont(0)
        servers.wait_until_ready()


def test_uvloop_runs_it_too(servers: NatsServers, name: str) -> None:
    async def run() -> None:
        async with Nodes() as nodes:
            engine = await nodes.join(servers.urls(), name)
            log = await open_log(engine)
            assert await log.append([b"a", b"b"], 0) == 2
            assert await read_all(log) == [b"a", b"b"]
            leases = await open_leases(engine)
            assert await leases.write(Lease(1, "a"), 0) == 1

    uvloop.run(run())
