"""The control socket: both ends against each other, and each against ends that misbehave."""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from queuelake.broker.control import REQUESTS_PER_CONNECTION_MAX, ControlServer, Operation
from queuelake.control import FRAME_BYTES_MAX, ClientInfo, Histogram, MetricsSnapshot, socket_path
from queuelake.control_client import ControlClient, call
from queuelake.errors import AnswerError, BrokerDownError, RefusedError, StorageError


def echo(args: dict[str, object]) -> object:
    return args


async def slow(args: dict[str, object]) -> object:
    await asyncio.sleep(float(str(args["seconds"])))
    return args


def refuse(_args: dict[str, object]) -> object:
    raise RefusedError("17 of 16 things")


def lose_disk(_args: dict[str, object]) -> object:
    raise StorageError("disk full")


def crash(_args: dict[str, object]) -> object:
    raise ZeroDivisionError("private")


OPERATIONS: dict[str, Operation] = {
    "echo": echo,
    "slow": slow,
    "refuse": refuse,
    "lose_disk": lose_disk,
    "crash": crash,
    "huge": lambda _: b"x" * (FRAME_BYTES_MAX + 1),
    "alien": lambda _: object(),
    "metrics": lambda _: MetricsSnapshot(
        "1", True, commit_duration_s=Histogram([1.0], [1, 2], 3.0)
    ),
    "client": lambda _: {"client_id": "x", "connected": True, "from_the_future": 1},
}


async def start(data_dir: Path) -> ControlServer:
    server = ControlServer(data_dir, OPERATIONS)
    await server.start()
    return server


async def test_answers_come_back_as_structs(tmp_path: Path) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path)
    assert await client.call("echo", object, {"a": [1, None, "ü"]}) == {"a": [1, None, "ü"]}
    snapshot = await client.call("metrics", MetricsSnapshot)
    assert snapshot.commit_duration_s == Histogram([1.0], [1, 2], 3.0)
    assert (await client.call("client", ClientInfo)).client_id == "x"
    await client.close()
    await server.close()


async def test_errors_keep_their_code_and_status_and_mistakes_stay_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path)
    for op, code, status in [
        ("refuse", "BAD_REQUEST", 400),
        ("lose_disk", "SERVICE_UNAVAILABLE", 503),
        ("crash", "INTERNAL_ERROR", 500),
        ("huge", "INTERNAL_ERROR", 500),
        ("alien", "INTERNAL_ERROR", 500),
        ("nothing", "NOT_FOUND", 404),
    ]:
        with pytest.raises(AnswerError) as caught:
            await client.call(op, object)
        assert (caught.value.code, caught.value.http_status) == (code, status), op
        assert "private" not in str(caught.value)
    assert "ZeroDivisionError: private" in caplog.text
    await client.close()
    await server.close()


async def test_a_slow_call_does_not_hold_up_a_quick_one(tmp_path: Path) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path)
    waiting = asyncio.create_task(client.call("slow", object, {"seconds": 30}, timeout_s=30))
    async with asyncio.timeout(5):
        assert await client.call("echo", object, {"n": 1}) == {"n": 1}
    waiting.cancel()
    await client.close()
    await server.close(timeout_s=0.1)


async def test_many_calls_at_a_time_each_get_their_own_answer(tmp_path: Path) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path)
    count = REQUESTS_PER_CONNECTION_MAX * 3
    calls = [client.call("slow", object, {"seconds": n % 5 / 100, "n": n}) for n in range(count)]
    answers = await asyncio.gather(*calls)
    assert [answer["n"] for answer in answers] == list(range(count))  # type: ignore[index]
    await client.close()
    await server.close()


async def test_a_call_ends_at_its_time_limit_and_the_next_one_works(tmp_path: Path) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path, timeout_s=0.1)
    with pytest.raises(BrokerDownError, match=r"'slow' within 0.1 s"):
        await client.call("slow", object, {"seconds": 0.3})
    await asyncio.sleep(0.4)  # the late answer arrives and is nobody's
    assert await client.call("echo", object, {"n": 2}) == {"n": 2}
    await client.close()
    await server.close()


async def test_the_client_connects_again_after_a_restart(tmp_path: Path) -> None:
    client = ControlClient(tmp_path)
    with pytest.raises(BrokerDownError, match="No such file"):
        await client.call("echo", object)
    for _ in range(3):
        server = await start(tmp_path)
        assert await client.call("echo", object) == {}
        waiting = asyncio.create_task(client.call("slow", object, {"seconds": 30}))
        await asyncio.sleep(0.05)
        await server.close(timeout_s=0.01)
        with pytest.raises(BrokerDownError, match="closed the control connection"):
            await waiting
        with pytest.raises(BrokerDownError):
            await client.call("echo", object)
    await client.close()


async def test_the_socket_is_private_and_goes_with_the_server(tmp_path: Path) -> None:
    server = await start(tmp_path)
    path = tmp_path / "control.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await server.close()
    assert not path.exists()


async def test_a_socket_left_by_a_killed_broker_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control.sock"))
    with pytest.raises(BrokerDownError, match="refused"):
        await ControlClient(tmp_path).call("echo", object)
    server, client = await start(tmp_path), ControlClient(tmp_path)
    assert await client.call("echo", object) == {}
    await client.close()
    await server.close()


async def test_a_long_path_moves_the_socket_to_a_private_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / ("d" * 120)
    data_dir.mkdir()
    killed, server = await start(data_dir), ControlServer(data_dir, OPERATIONS)
    left_behind = socket_path(data_dir)
    assert stat.S_IMODE(left_behind.parent.stat().st_mode) == 0o700
    await server.start()  # as after kill -9 of the first
    path = socket_path(data_dir)
    assert not left_behind.parent.exists()
    client = ControlClient(data_dir)
    assert await client.call("echo", object) == {}
    await client.close()
    await server.close()
    assert not path.parent.exists()
    assert list(data_dir.iterdir()) == []
    await killed.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x03abc",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00",
    ],
)
async def test_a_stranger_is_disconnected_and_harms_nobody(tmp_path: Path, sent: bytes) -> None:
    server, client = await start(tmp_path), ControlClient(tmp_path)
    reader, writer = await asyncio.open_unix_connection(str(socket_path(tmp_path)))
    writer.write(sent)
    writer.write_eof()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    assert await client.call("echo", object) == {}
    writer.close()
    await client.close()
    await server.close()


async def test_an_operation_ends_even_when_its_caller_is_gone(tmp_path: Path) -> None:
    done = asyncio.Event()

    async def work(_args: dict[str, object]) -> object:
        await asyncio.sleep(0.1)
        done.set()
        return "x" * 100_000

    server = ControlServer(tmp_path, {"work": work})
    await server.start()
    client = ControlClient(tmp_path)
    with pytest.raises(BrokerDownError):
        await client.call("work", object, timeout_s=0.02)
    await client.close()
    async with asyncio.timeout(5):
        await done.wait()
    await server.close()


async def test_the_blocking_call_works_without_a_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    server = await start(tmp_path)

    def ask(op: str, args: dict[str, object], timeout_s: float = 5.0) -> object:
        return call(tmp_path, op, args, timeout_s)

    big = {"text": "x" * 1_000_000}
    assert await asyncio.to_thread(ask, "echo", big) == big
    answer = await asyncio.to_thread(ask, "metrics", {})
    assert msgspec.convert(answer, MetricsSnapshot).version == "1"
    with pytest.raises(AnswerError, match="17 of 16 things"):
        await asyncio.to_thread(ask, "refuse", {})
    with pytest.raises(BrokerDownError, match="within"):
        await asyncio.to_thread(ask, "slow", {"seconds": 0.5}, 0.1)
    await server.close()
    with pytest.raises(BrokerDownError, match="No such file"):
        ask("echo", {})


@pytest.mark.parametrize("answer", [b"\x00\x00\x00\x01\xc1", b"\xff\xff\xff\xff", b"\x00", b""])
def test_the_blocking_call_survives_a_broker_that_talks_nonsense(
    tmp_path: Path, answer: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "control.sock"))
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(BrokerDownError):
            call(tmp_path, "echo", {}, 5.0)
        thread.join()
