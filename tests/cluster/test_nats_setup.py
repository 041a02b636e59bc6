"""How a node comes to NATS: logins, TLS, and streams which are not as they should be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import nkeys
import pytest

from queuelake.cluster.engine import Lease, UnavailableError
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.errors import ConfigError
from tests.cluster.nats_nodes import Nodes, config, patiently, read_all
from tests.harness.nats import NatsServers
from tests.interop.certificates import Authority


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    with NatsServers(tmp_path_factory.mktemp("nats"), 1) as one:
        yield one


async def use(urls: list[str], **fields: Any) -> None:
    """Log in, and do with the log and the lease what needs permissions."""
    async with Nodes() as nodes:
        engine = await nodes.join(urls, "test", replicas=1, **fields)
        log = await engine.log(0)
        last = (await log.ends())[1]
        assert await log.append([b"a"], last) == last + 1
        assert await log.read(last + 1, 1) == [b"a"]
        leases = await engine.leases(0)
        _, revision = await leases.read()
        await leases.write(Lease(1, "a"), revision)
        assert await engine.messenger.is_there("a")


async def refusal(urls: list[str], **fields: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        await asyncio.wait_for(NatsEngine.connect(config(urls, "test", **fields)), 10)
    (line,) = caught.value.mistakes
    return line


async def test_with_a_user_and_a_password(tmp_path: Path) -> None:
    login = 'authorization { user: "queuelake", password: "geheim" }'
    with NatsServers(tmp_path, 1, login) as server:
        await use(server.urls(), user="queuelake", password="geheim")
        for wrong in ({}, {"user": "queuelake", "password": "falsch"}, {"token": "geheim"}):
            assert "NATS refuses the login" in await refusal(server.urls(), **wrong)


async def test_with_a_token(tmp_path: Path) -> None:
    with NatsServers(tmp_path, 1, 'authorization { token: "geheim" }') as server:
        await use(server.urls(), token="geheim")
        assert "NATS refuses the login" in await refusal(server.urls(), token="falsch")


async def test_with_the_seed_of_an_nkey(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    key = nkeys.from_seed(bytearray(seed)).public_key.decode()
    file = tmp_path / "seed"
    file.write_bytes(bytes(seed))
    with NatsServers(tmp_path, 1, f"authorization {{ users: [{{ nkey: {key} }}] }}") as server:
        await use(server.urls(), nkey_seed_file=str(file))


async def test_the_documented_permissions_are_enough(tmp_path: Path) -> None:
    subjects = '["queuelake.test.>", "$JS.API.>", "$KV.QL_test.>", "_INBOX.>"]'
    allowed = f"permissions: {{ publish: {subjects}, subscribe: {subjects} }}"
    users = f'authorization {{ users: [{{ user: "u", password: "p", {allowed} }}] }}'
    with NatsServers(tmp_path, 1, users) as server:
        await use(server.urls(), user="u", password="p")


async def test_over_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own, client = authority.server(), authority.client("a")
    files = f'cert_file: "{own.certificate}", key_file: "{own.key}"'
    verify = f'ca_file: "{authority.certificate}", verify: true'
    shown = {"certificate": str(client.certificate), "key": str(client.key)}
    with NatsServers(tmp_path, 1, f"tls {{ {files}, {verify} }}", "tls") as server:
        await use(server.urls(), ca_file=str(authority.certificate), **shown)
        stranger = Authority(tmp_path / "other").certificate
        line = await refusal(server.urls(), ca_file=str(stranger), **shown)
        assert line.startswith("cluster.ca_file: TLS with NATS failed")


async def test_nobody_logs_in_without_the_tls_that_was_asked_for(server: NatsServers) -> None:
    urls = [url.replace("nats:", "tls:") for url in server.urls()]
    assert "has no TLS" in await refusal(urls)


async def test_parts_are_below_what_the_server_takes(tmp_path: Path) -> None:
    with NatsServers(tmp_path, 1, "max_payload: 64KB") as server:
        async with Nodes() as nodes:
            engine = await nodes.join(server.urls(), "test", replicas=1)
            log = await engine.log(0)
            assert log.part_bytes_max < 64 * 1024
            assert engine.messenger.payload_bytes_max == 64 * 1024
            parts = [b"x" * log.part_bytes_max, b"y"]
            assert await log.append(parts, 0) == 2
            assert await read_all(log) == parts


async def test_a_node_waits_for_its_first_server(tmp_path: Path) -> None:
    servers = NatsServers(tmp_path, 1)
    joining = asyncio.create_task(NatsEngine.connect(config(servers.urls(), "test", replicas=1)))
    await asyncio.sleep(0)
    assert not joining.done()
    with servers:
        engine = await asyncio.wait_for(joining, 20)
        try:
            await patiently(lambda: engine.log(0))
        finally:
            await engine.close()


async def test_several_nodes_may_make_the_streams_at_once(tmp_path: Path) -> None:
    with NatsServers(tmp_path) as three:
        async with Nodes() as nodes:
            engines = [await nodes.join(three.urls(i), "test", f"n{i}") for i in range(3)]
            first = [patiently(lambda one=one: one.log(0)) for one in engines]  # type: ignore[misc]
            logs = await asyncio.gather(*first)
            await asyncio.gather(*(patiently(lambda one=one: one.leases(0)) for one in engines))  # type: ignore[misc]
            assert await logs[0].append([b"a"], 0) == 1
            assert await read_all(logs[2]) == [b"a"]
            other = await nodes.join(three.urls(), "test", "other", replicas=1)
            line = "cluster.replicas = 1: the stream QL_test_0 has 3"
            with pytest.raises(ConfigError, match=line):
                await other.log(0)


async def test_a_server_alone_cannot_have_replicas(server: NatsServers) -> None:
    async with Nodes() as nodes:
        engine = await nodes.join(server.urls(), "alone", replicas=3)
        with pytest.raises(ConfigError, match="replicas = 3: this NATS server is alone"):
            await engine.log(0)


async def test_a_stream_that_forgets_by_itself_is_refused(server: NatsServers) -> None:
    client = await nats.connect(server.urls()[0])
    try:
        stream = client.jetstream()
        await stream.add_stream(
            name="QL_forgetful_0", subjects=["queuelake.forgetful.log.0"], max_age=60
        )
    finally:
        await client.close()
    async with Nodes() as nodes:
        engine = await nodes.join(server.urls(), "forgetful", replicas=1)
        with pytest.raises(ConfigError) as caught:
            await engine.log(0)
        age = "stream QL_forgetful_0: has max_age = 60000000000; allowed: 0"
        assert age in caught.value.mistakes


async def test_a_cluster_keeps_the_number_of_shards_it_was_made_with(server: NatsServers) -> None:
    async with Nodes() as nodes:
        await (await nodes.join(server.urls(), "sharded", "a", replicas=1, shards=2)).log(0)
        other = await nodes.join(server.urls(), "sharded", "b", replicas=1)
        with pytest.raises(ConfigError, match="shards = 1: the cluster was made with 2"):
            await other.log(0)


async def test_without_jetstream_the_log_is_not_available(tmp_path: Path) -> None:
    accounts = 'accounts { A { users: [{ user: "u", password: "p" }] } }'
    with NatsServers(tmp_path, 1, accounts) as server:
        async with Nodes() as nodes:
            engine = await nodes.join(server.urls(), "test", user="u", password="p", replicas=1)
            with pytest.raises((ConfigError, UnavailableError), match=r"JetStream|nobody listens"):
                await engine.log(0)
