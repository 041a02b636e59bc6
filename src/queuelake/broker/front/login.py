"""The login of a client at all shards: first where it is at home, which decides, then elsewhere.

The home shard has checked the client when the others are asked. Where that took a password or an
exchange they are told whom it has proven to be, as a node tells what it knows of a certificate;
a token they check themselves, because rules and an end may be in it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from queuelake.broker.certificates import LOGIN_NS, PROVEN_USER
from queuelake.broker.front import forwarded
from queuelake.broker.front import server_packets as sp
from queuelake.broker.front.leg import Leg
from queuelake.broker.front.splitting import split_trigger
from queuelake.control import ClientInfo
from queuelake.errors import QueuelakeError
from queuelake.placing import EVERYWHERE, SPLIT, Placing
from queuelake.protocol import encoder, reasons
from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5, Connect, Will

if TYPE_CHECKING:
    from queuelake.broker.front.front import Front

TOKEN_DOTS: Final = 2


class LoginRefusedError(QueuelakeError):
    """The client hears `connack`, or nothing."""

    def __init__(self, connack: bytes = b"") -> None:
        super().__init__("the login was refused")
        self.connack = connack


@dataclass(frozen=True)
class LoggedIn:
    home: int
    legs: list[Leg]  # by shard
    connack: bytes  # for the client
    keepalive_s: int


async def log_in(front: Front, connect: Connect, info: dict[str, object]) -> LoggedIn:
    """Connect to every shard.

    Raises:
        LoginRefusedError: one of them said no, or there is none.
    """
    fronts = front.fronts
    assigned = ""
    if not connect.client_id and (connect.version == V5 or connect.clean_start):
        assigned = connect.client_id = "auto-" + uuid.uuid4().hex
    try:
        async with asyncio.timeout(fronts.hold_s):
            await fronts.all_owned()
    except TimeoutError:
        raise LoginRefusedError(unserved(connect)) from None
    home = fronts.placing.of(connect.client_id.encode())
    wills = wills_by_shard(connect.will, fronts.placing, home)
    legs: dict[int, Leg] = {}
    info = info | {LOGIN_NS: time.time_ns()}

    def begin(shard: int, more: dict[str, object], with_login: bool) -> Leg:
        leg = legs[shard] = Leg(front, shard)
        fronts.node.open(shard, info | more, leg)
        leg.send([forwarded.connect(connect, wills.get(shard), with_login)])
        return leg

    try:
        front.home = begin(home, {}, with_login=True)
        answer = await front.home.connack
        _check(answer)
        user = await _proven_user(front, home, connect, info)
        more: dict[str, object] = {} if user is None else {PROVEN_USER: user}
        others = [begin(k, more, user is None) for k in range(fronts.placing.shards) if k != home]
        answers = [answer, *[await leg.connack for leg in others]]
        for one in answers:
            _check(one)
    except BaseException as error:
        for leg in legs.values():
            leg.abort()
        if isinstance(error, QueuelakeError | OSError) and not isinstance(error, LoginRefusedError):
            raise LoginRefusedError(unserved(connect)) from error
        raise
    present = any(sp.is_present(one) for one in answers)
    connack = sp.joined_connack(connect.version, answer, present, assigned)
    ordered = [legs[shard] for shard in range(fronts.placing.shards)]
    return LoggedIn(home, ordered, connack, fronts.keepalive_s(connect.keepalive_s))


def _check(connack: bytes) -> None:
    if sp.connack_reason(connack):
        raise LoginRefusedError(connack)


async def _proven_user(
    front: Front, home: int, connect: Connect, info: dict[str, object]
) -> str | None:
    password = connect.password
    is_token = password is not None and password.count(b".") == TOKEN_DOTS
    if connect.auth_method is None and (password is None or is_token):
        return None
    args: dict[str, object] = {"client_id": connect.client_id}
    found = await front.fronts.node.ask(home, "client", args, ClientInfo)
    peer = info.get("peername")
    address = f"{peer[0]}:{peer[1]}" if isinstance(peer, list) else None
    if front.home is None or front.home.is_lost or not found.connected or found.address != address:
        # Another one has its place by now, maybe another user's: what it has proven is not ours.
        raise LoginRefusedError(unserved(connect))
    return found.username


def wills_by_shard(will: Will | None, placing: Placing, home: int) -> dict[int, Will]:
    """Each broker publishes the will which is its affair: mostly one has it all."""
    if will is None:
        return {}
    place = placing.of_topic(will.topic)
    if place == EVERYWHERE:
        return dict.fromkeys(range(placing.shards), will)
    if place != SPLIT:
        return {place: will}
    head = will.body[: will.payload_at]
    parts = split_trigger(will.body[will.payload_at :], placing)
    return {
        shard: Will(
            will.topic,
            will.qos,
            will.retain,
            head + part,
            will.payload_at,
            will.expiry_at,
            will.delay_s,
        )
        for shard, part in parts.items()
    } or {home: will}


def unserved(connect: Connect) -> bytes:
    """CONNACK, no longer than the client takes."""
    version, reason = connect.version, reasons.SERVER_UNAVAILABLE
    words = b"a shard of the cluster has no owner at the moment; try again"
    whole = encoder.connack(version, False, reason, p.write_value(p.REASON_STRING, words))
    if 0 < connect.packet_size_max < len(whole):
        return encoder.connack(version, False, reason)
    return whole
