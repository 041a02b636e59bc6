"""Tunnels: connections through messages; in order and whole, or lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from queuelake.cluster.flow import FLOW_BYTES_MAX
from queuelake.cluster.frames import INFO_BYTES_MAX
from queuelake.cluster.tunnel_transport import HIGH_BYTES, WINDOW_BYTES
from queuelake.errors import FrameError
from tests.cluster.tunnel_world import NEVER_S, End, World, tunnel_of


@pytest.fixture
async def world() -> World:
    world = World()
    for name in ("a", "b"):
        await world.start(name)
    return world


async def pair(world: World, **info: object) -> tuple[End, End]:
    """Both ends of a new tunnel from a to b."""
    _, near = world.open("a", "b", **info)
    await world.settle()
    return near, world.ends["b"][-1]


async def test_bytes_go_both_ways_and_data_may_follow_the_opening_at_once(world: World) -> None:
    tunnel, near = world.open("a", "b", listener="mqtt", peername=("10.0.0.1", 7))
    tunnel.write(b"hello ")
    tunnel.writelines([b"wor", bytearray(b"ld")])
    await world.settle()
    [far] = world.ends["b"]
    assert bytes(far.data) == b"hello world"
    assert tunnel_of(far).get_extra_info("listener") == "mqtt"
    assert tunnel_of(far).get_extra_info("peername") == ("10.0.0.1", 7)
    assert tunnel_of(far).get_extra_info("node") == "a"
    tunnel_of(far).write(b"welcome")
    await world.settle()
    assert bytes(near.data) == b"welcome"


async def test_what_a_turn_writes_to_many_tunnels_leaves_in_one_message(world: World) -> None:
    ends = [await pair(world) for _ in range(50)]
    before = world.wires.sent
    for near, _ in ends:
        tunnel_of(near).write(b"x" * 100)
    await world.settle()
    assert world.wires.sent == before + 1
    assert all([bytes(far.data) == b"x" * 100 for _, far in ends])


async def test_messages_are_split_at_the_limit_of_the_messenger() -> None:
    world = World(payload_bytes_max=2048)
    for name in ("a", "b"):
        await world.start(name)
    near, far = await pair(world)
    data = random.Random(1).randbytes(100_000)
    tunnel_of(near).write(data)
    await world.settle()
    assert bytes(far.data) == data
    assert world.wires.sent > 50


async def test_close_delivers_what_was_written_before(world: World) -> None:
    near, far = await pair(world)
    data = random.Random(2).randbytes(3 * WINDOW_BYTES)
    tunnel_of(near).write(data)
    tunnel_of(near).close()
    tunnel_of(near).write(b"too late")
    assert tunnel_of(near).is_closing()
    assert not near.is_over
    await world.settle()
    assert bytes(far.data) == data
    for end in (near, far):
        assert end.is_over
        assert end.error is None
    assert world.nodes["a"].count("b") == world.nodes["b"].count("a") == 0


async def test_both_sides_may_close_with_more_than_a_window_to_say(world: World) -> None:
    near, far = await pair(world)
    for end in (near, far):
        tunnel_of(end).write(bytes(3 * WINDOW_BYTES))
        tunnel_of(end).close()
    await world.settle()
    assert near.is_over
    assert far.is_over


async def test_abort_is_heard_as_a_reset(world: World) -> None:
    near, far = await pair(world)
    tunnel_of(near).abort()
    await world.settle()
    assert near.is_over
    assert near.error is None
    assert isinstance(far.error, ConnectionResetError)


async def test_a_reason_for_breaking_off_arrives(world: World) -> None:
    near, far = await pair(world)
    tunnel_of(far).reset("no room for it")
    await world.settle()
    assert isinstance(near.error, ConnectionResetError)
    assert str(near.error) == "no room for it"


async def test_a_refused_tunnel_is_lost_with_a_reason(world: World) -> None:
    _, refused = world.open("a", "b", refuse=True)
    _, failed = world.open("a", "b", fail=True)
    unknown = End()
    world.nodes["a"].open("b", "nonsense", {}, unknown)
    await world.settle()
    assert str(refused.error) == str(failed.error) == "node b refused a tunnel of kind 'test'"
    assert str(unknown.error) == "node b takes no tunnels of kind 'nonsense'"


async def test_info_has_a_limit(world: World) -> None:
    with pytest.raises(FrameError, match=str(INFO_BYTES_MAX)):
        world.open("a", "b", name="x" * INFO_BYTES_MAX)


async def test_a_node_can_have_a_tunnel_to_itself(world: World) -> None:
    tunnel, near = world.open("a", "a")
    tunnel.write(b"echo?")
    await world.settle()
    [far] = world.ends["a"]
    tunnel_of(far).write(bytes(far.data))
    tunnel_of(far).close()
    await world.settle()
    assert bytes(near.data) == b"echo?"
    assert near.is_over
    assert far.is_over


async def test_a_paused_reader_gets_no_more_than_a_window_and_the_writer_is_paused(
    world: World,
) -> None:
    near, far = await pair(world)
    tunnel_of(far).pause_reading()
    data = random.Random(3).randbytes(WINDOW_BYTES + HIGH_BYTES + 1)
    tunnel_of(near).write(data)
    assert near.is_paused
    await world.settle()
    assert far.data == b""
    assert near.is_paused, "what is beyond the window is above the high mark"
    assert tunnel_of(near).get_write_buffer_size() == HIGH_BYTES + 1
    tunnel_of(far).resume_reading()
    await world.settle()
    assert bytes(far.data) == data
    assert not near.is_paused
    assert tunnel_of(near).get_write_buffer_size() == 0


async def test_what_arrives_right_after_reading_is_resumed_waits_its_turn(world: World) -> None:
    near, far = await pair(world)
    tunnel_of(far).pause_reading()
    tunnel_of(near).write(b"first ")
    await world.settle()
    tunnel_of(near).write(b"second")
    await asyncio.sleep(0)
    tunnel_of(far).resume_reading()
    world.wires.deliver()  # in the same turn
    await world.settle()
    assert bytes(far.data) == b"first second"


async def test_a_reader_which_pauses_at_each_piece_gets_everything(world: World) -> None:
    class Choosy(End):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            tunnel_of(self).pause_reading()

    choosy = Choosy()
    world.nodes["a"].open("b", "test", {}, choosy)
    await world.settle()
    [far] = world.ends["b"]
    tunnel_of(far).write(bytes(8 * WINDOW_BYTES))
    while len(choosy.data) < 8 * WINDOW_BYTES:
        await world.settle()
        before = choosy.pieces
        tunnel_of(choosy).resume_reading()
        await world.settle()
        assert choosy.pieces == before + 1


async def test_an_end_waits_behind_what_a_paused_reader_has_not_read(world: World) -> None:
    near, far = await pair(world)
    tunnel_of(far).pause_reading()
    tunnel_of(near).write(b"last words")
    tunnel_of(near).close()
    await world.settle()
    assert not far.is_over
    tunnel_of(far).resume_reading()
    await world.settle()
    assert bytes(far.data) == b"last words"
    assert far.is_over
    assert far.error is None


async def test_a_slow_reader_does_not_stop_another_tunnel(world: World) -> None:
    slow_near, slow_far = await pair(world)
    near, far = await pair(world)
    tunnel_of(slow_far).pause_reading()
    tunnel_of(slow_near).write(bytes(4 * WINDOW_BYTES))
    data = random.Random(4).randbytes(4 * WINDOW_BYTES)
    tunnel_of(near).write(data)
    await world.settle()
    assert bytes(far.data) == data
    assert slow_far.data == b""


async def test_what_is_under_way_is_bounded_for_all_tunnels_together(world: World) -> None:
    ends = [await pair(world) for _ in range(40)]
    for near, _ in ends:
        tunnel_of(near).write(bytes(WINDOW_BYTES))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    under_way = sum([len(data) for _, data in world.wires.waiting])
    assert FLOW_BYTES_MAX // 2 < under_way < FLOW_BYTES_MAX + 200_000
    await world.settle()
    assert all([len(far.data) == WINDOW_BYTES for _, far in ends])


async def test_readers_who_pause_do_not_use_up_what_may_be_under_way(world: World) -> None:
    for _ in range(2 * FLOW_BYTES_MAX // WINDOW_BYTES):
        slow_near, slow_far = await pair(world)
        tunnel_of(slow_far).pause_reading()
        tunnel_of(slow_near).write(bytes(WINDOW_BYTES))
    near, far = await pair(world)
    tunnel_of(near).write(b"not held up")
    await world.settle()
    assert bytes(far.data) == b"not held up"


def losing(count: int) -> Callable[[str, bytes], bool]:
    """The next few messages are lost."""
    left = [count]

    def loses(subject: str, data: bytes) -> bool:
        left[0] -= 1
        return left[0] >= 0

    return loses


async def test_a_gap_loses_all_tunnels_on_both_sides_and_new_ones_work(world: World) -> None:
    ends = [end for _ in range(3) for end in await pair(world)]
    world.wires.loses = losing(1)
    tunnel_of(ends[0]).write(b"never arrives")
    await world.settle()
    assert not any([end.is_over for end in ends]), "nobody can know yet"
    tunnel_of(ends[2]).write(b"behind the gap")
    await world.settle()
    assert all([isinstance(end.error, ConnectionResetError) for end in ends])
    assert all([end.data == b"" for end in ends])
    near, far = await pair(world)
    tunnel_of(near).write(b"anew")
    await world.settle()
    assert bytes(far.data) == b"anew"


async def test_a_heartbeat_shows_that_the_last_message_was_lost(world: World) -> None:
    near, far = await pair(world)
    world.wires.loses = losing(1)
    tunnel_of(near).write(b"never arrives")
    await world.settle()
    await world.beat(2)  # the first one is silent: something was sent since the last
    assert isinstance(near.error, ConnectionResetError)
    assert isinstance(far.error, ConnectionResetError)


async def test_a_lost_opening_is_noticed_though_nobody_has_a_tunnel_there(world: World) -> None:
    await pair(world)
    world.nodes["a"].lose("b", "as the test asked")
    await world.settle()
    world.wires.loses = losing(1)
    _, near = world.open("a", "b")
    await world.settle()
    await world.beat(2)  # the first one is silent: something was sent since the last
    assert isinstance(near.error, ConnectionResetError)


async def test_a_lost_end_is_noticed_though_its_sender_has_forgotten_it(world: World) -> None:
    near, far = await pair(world)
    world.wires.loses = losing(1)
    tunnel_of(near).close()
    await world.settle()
    assert near.is_over
    assert not far.is_over
    await world.beat(2)  # the first one is silent: something was sent since the last
    assert isinstance(far.error, ConnectionResetError)


async def test_a_node_which_is_not_heard_is_lost(world: World) -> None:
    near, _ = await pair(world)
    world.wires.loses = lambda subject, data: True
    await world.beat(3)
    assert not near.is_over
    await world.beat(2)
    assert str(near.error) == f"node b was not heard for {3 * NEVER_S:g} s"


async def test_idle_tunnels_live_on_heartbeats_and_without_tunnels_there_are_none(
    world: World,
) -> None:
    near, far = await pair(world)
    await world.beat(20)
    assert not near.is_over
    assert not far.is_over
    tunnel_of(near).close()
    await world.settle()
    await world.beat(3)
    before = world.wires.sent
    await world.beat(3)
    assert world.wires.sent == before


async def test_a_restarted_node_is_a_new_one(world: World) -> None:
    near, _ = await pair(world)
    back, _ = world.open("b", "a")
    await world.settle()
    [back_far] = world.ends["a"]
    await world.start("b")  # the former hears nothing any more
    tunnel_of(near).write(b"for the former")
    await world.settle()
    assert str(near.error) == str(back_far.error) == "node b was started again"
    assert world.ends["b"] == []
    near, far = await pair(world)
    tunnel_of(near).write(b"for the new one")
    await world.settle()
    assert bytes(far.data) == b"for the new one"
    back.write(b"a ghost speaks")


async def test_the_first_tunnel_of_a_restarted_node_works(world: World) -> None:
    near, _ = await pair(world)
    await world.start("b")
    tunnel, end = world.open("b", "a")
    tunnel.write(b"first")
    await world.settle()
    assert near.is_over
    assert not end.is_over
    assert bytes(world.ends["a"][-1].data) == b"first"


async def test_the_first_tunnel_to_a_restarted_node_works_when_it_has_greeted(world: World) -> None:
    before, _ = await pair(world)
    await world.start("b")
    world.nodes["b"].greet("a")
    await world.settle()
    assert str(before.error) == "node b was started again"
    near, far = await pair(world)
    tunnel_of(near).write(b"first")
    await world.settle()
    assert bytes(far.data) == b"first"
    world.nodes["b"].greet("a")  # once too often does no harm
    await world.settle()
    assert not near.is_over


async def test_what_was_meant_for_a_killed_process_is_not_sent_to_the_next(world: World) -> None:
    await pair(world)
    await world.start("b")
    world.open("b", "a")
    await asyncio.sleep(0)
    _, near = world.open("a", "b")
    world.wires.deliver()  # in the same turn a hears of the new process
    await world.settle()
    assert str(near.error) == "node b was started again"
    assert world.ends["b"] == []


async def test_late_words_of_dead_processes_confuse_nobody(world: World) -> None:
    """Both nodes hear a dead one first, and each other afterwards."""
    world.open("a", "b")
    world.open("b", "a")
    await asyncio.sleep(0)
    await world.start("a")
    await world.start("b")
    world.open("a", "b")
    world.open("b", "a")
    await world.settle()
    await world.beat(2)
    near, far = await pair(world)
    tunnel_of(near).write(b"at last")
    await world.settle()
    assert bytes(far.data) == b"at last"


async def test_a_tunnel_to_a_node_which_comes_later_works_the_second_time(world: World) -> None:
    _, early = world.open("a", "c")
    await world.beat(6)
    assert isinstance(early.error, ConnectionResetError)
    await world.start("c")
    tunnel, near = world.open("a", "c")
    tunnel.write(b"there?")
    await world.settle()
    assert not near.is_over
    assert bytes(world.ends["c"][0].data) == b"there?"


async def test_closing_a_node_loses_its_tunnels_on_both_sides(world: World) -> None:
    near, far = await pair(world)
    world.nodes["a"].close()
    await world.settle()
    assert isinstance(near.error, ConnectionResetError)
    assert isinstance(far.error, ConnectionResetError)


async def test_a_protocol_which_fails_loses_its_tunnel_and_no_other(world: World) -> None:
    class Failing(End):
        def data_received(self, data: bytes) -> None:
            raise RuntimeError("as the test asked")

    failing = Failing()
    world.nodes["a"].open("b", "test", {}, failing)
    near, far = await pair(world)
    failing_far = world.ends["b"][0]
    tunnel_of(failing_far).write(b"x")
    tunnel_of(far).write(b"y")
    await world.settle()
    assert failing.is_over
    assert isinstance(failing_far.error, ConnectionResetError)
    assert bytes(near.data) == b"y"


async def test_what_is_no_message_of_ours_is_refused(world: World) -> None:
    near, far = await pair(world)
    for junk in (b"", b"\x01", b"\x02" + bytes(60), b"\x01" + b"\xff" * 40):
        world.wires.receivers["node.b.frames"](junk)
    tunnel_of(near).write(b"still here")
    await world.settle()
    assert bytes(far.data) == b"still here"


async def test_streams_of_asyncio_work_on_tunnels(world: World) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    tunnel = world.nodes["a"].open("b", "test", {}, protocol)
    writer = asyncio.StreamWriter(tunnel, protocol, reader, asyncio.get_running_loop())
    writer.write(b"question\n")
    await world.settle()
    [far] = world.ends["b"]
    assert bytes(far.data) == b"question\n"
    tunnel_of(far).write(b"x" * 500_000 + b"\n")
    tunnel_of(far).close()
    world.wires.run()
    assert len(await reader.read(-1)) == 500_001
    writer.close()


async def test_what_was_opened_for_one_shard_is_lost_and_the_rest_goes_on(world: World) -> None:
    first, second = await pair(world), await pair(world, shard=2)
    world.nodes["a"].lose_shard("b", 2, "b does not own shard 2 any more")
    await world.settle()
    assert [end.is_over for end in (*first, *second)] == [False, False, True, True]
    assert str(second[0].error) == "b does not own shard 2 any more"
    tunnel_of(first[0]).write(b"still here")
    await world.settle()
    assert bytes(first[1].data) == b"still here"


async def test_only_what_we_opened_is_lost_with_a_shard(world: World) -> None:
    near, _ = await pair(world, shard=2)
    world.nodes["b"].lose_shard("a", 2, "not ours to say")
    world.nodes["b"].lose_shard("c", 2, "nobody")
    await world.settle()
    assert not near.is_over
