"""From CONNECT to CONNACK: who the client is, which session it gets, what it is told.

A login which only compares runs on the loop. One which hashes a password runs in a thread; the
connection reads nothing meanwhile. Enhanced authentication (SCRAM) takes several AUTH packets, and
may be repeated on a connection which is online.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, final

from queuelake.broker.auth.authenticator import Identity, Login
from queuelake.broker.throttle import LOGIN
from queuelake.errors import ProtocolViolationError, RefusedError
from queuelake.protocol import encoder, reasons
from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5, Auth, Connect
from queuelake.protocol.topics import topic_problem

if TYPE_CHECKING:
    from queuelake.broker.auth.scram import ScramExchange
    from queuelake.broker.connection import Connection
    from queuelake.broker.core import Broker

CLIENT_ID_BYTES_MAX = 1024


@final
class Handshake:
    """The login of one connection."""

    __slots__ = ("_assigned", "_connect", "_connection", "_exchange", "_final", "_login", "_method")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection = connection
        self._connect: Connect | None = None
        self._login: Login | None = None
        self._exchange: ScramExchange | None = None
        self._method: str = ""
        self._assigned: bool = False
        self._final: bytes = b""  # the server's last word of an exchange

    def begin(self, connect: Connect) -> None:
        connection = self._connection
        self._connect = connect
        try:
            self._check(connect)
            login = Login(
                connect.client_id,
                connect.username,
                connect.password,
                connection.peer_ip,
                connection.loopback,
                connection.certificate_user,
            )
            self._login = login
            if connect.auth_method is not None:
                self._begin_exchange(connect.auth_method, connect.auth_data or b"")
                return
            authenticator = connection.broker.authenticator
            if authenticator.is_quick(login):
                self._accept(authenticator.authenticate(login))
            else:
                connection.throttle.pause(LOGIN)
                connection.broker.authenticate_in_thread(login, self._authenticated)
        except RefusedError as error:
            self._refuse(error.reason_code, str(error))

    def _authenticated(self, identity: Identity | None, reason: int, problem: str) -> None:
        """The thread is done; the client may be gone by now."""
        connection = self._connection
        if not connection.waits_for_login():
            return
        if identity is None:
            self._refuse(reason, problem)
            return
        try:
            self._accept(identity)
        except RefusedError as error:
            self._refuse(error.reason_code, str(error))
            return
        connection.throttle.resume(LOGIN)
        connection.process()

    def _check(self, connect: Connect) -> None:
        """What the standard, or a limit, refuses before anybody asks for a password."""
        broker = self._connection.broker
        if not connect.client_id:
            if connect.version != V5 and not connect.clean_start:
                problem = "an empty client identifier needs a clean session"
                raise RefusedError.because(reasons.CLIENT_IDENTIFIER_NOT_VALID, problem)
            connect.client_id = "auto-" + uuid.uuid4().hex
            self._assigned = True
        elif len(connect.client_id.encode()) > CLIENT_ID_BYTES_MAX:
            problem = f"client identifier is longer than {CLIENT_ID_BYTES_MAX} bytes"
            raise RefusedError.because(reasons.CLIENT_IDENTIFIER_NOT_VALID, problem)
        will = connect.will
        if will is not None:
            mqtt = broker.settings.mqtt
            problem = topic_problem(will.topic, mqtt.topic_levels_max)
            if problem:
                raise RefusedError.because(reasons.TOPIC_NAME_INVALID, f"will: {problem}")
            if will.qos > mqtt.qos_max:
                raise RefusedError.because(reasons.QOS_NOT_SUPPORTED, f"will QoS {will.qos}")
            if will.retain and not mqtt.retain_available:
                raise RefusedError.because(
                    reasons.RETAIN_NOT_SUPPORTED, "will with the retain flag"
                )
        broker.refuse_if_full(self._connection)

    # Enhanced authentication

    def _begin_exchange(self, method: str, data: bytes) -> None:
        connection = self._connection
        assert self._login is not None
        connection.broker.authenticator.refuse_banned(self._login)
        exchange = connection.broker.authenticator.begin_exchange(method)
        if exchange is None:
            problem = f"authentication method {method[:64]!r} is not known here"
            raise RefusedError.because(reasons.BAD_AUTHENTICATION_METHOD, problem)
        self._exchange = exchange
        self._method = method
        self._step(data)

    def _step(self, data: bytes) -> None:
        connection = self._connection
        exchange = self._exchange
        assert exchange is not None
        assert self._login is not None
        try:
            answer = exchange.step(data)
        except RefusedError:
            connection.broker.authenticator.exchange_failed(self._login, exchange)
            raise
        if not exchange.done:
            connection.send(encoder.auth(reasons.CONTINUE_AUTHENTICATION, self._method, answer))
            if connection.session is None:
                connection.wait_for_auth()
            return
        self._exchange = None
        identity = connection.broker.authenticator.identity_of(exchange.username, self._login)
        identity.of_file = True
        self._final = answer
        if connection.session is None:
            self._accept(identity)
        else:
            connection.send(encoder.auth(reasons.SUCCESS, self._method, answer))

    def on_auth(self, packet: Auth) -> None:
        """AUTH of the client: the next step, or the start of another round while online."""
        connection = self._connection
        if not self._method or packet.method != self._method:
            raise ProtocolViolationError("AUTH with another method than CONNECT had")
        online = connection.session is not None
        try:
            if packet.reason == reasons.REAUTHENTICATE:
                if not online or self._exchange is not None:
                    raise ProtocolViolationError("re-authentication may not begin here")
                self._begin_exchange(self._method, packet.data or b"")
            elif self._exchange is None:
                raise ProtocolViolationError("AUTH without an authentication under way")
            else:
                self._step(packet.data or b"")
        except RefusedError as error:
            if online:
                connection.close(error.reason_code, str(error))
            else:
                self._refuse(error.reason_code, str(error))

    # The end of it

    def _accept(self, identity: Identity) -> None:
        connection = self._connection
        connect = self._connect
        assert connect is not None
        broker = connection.broker
        acl = broker.acl_for(connection.peer_ip, connect.client_id, identity)
        will = connect.will
        if will is not None and not acl.may_publish(will.topic):
            raise RefusedError.because(reasons.NOT_AUTHORIZED, "not authorized to publish the will")
        mqtt = broker.settings.mqtt
        expiry_s = connect.session_expiry_s
        if connect.version != V5:
            expiry_s = 0 if connect.clean_start else mqtt.session_expiry_s_v311
        expiry_s = min(max(0, expiry_s), mqtt.session_expiry_s_max)
        keepalive_s = connect.keepalive_s
        if mqtt.keepalive_s_max and (keepalive_s == 0 or keepalive_s > mqtt.keepalive_s_max):
            keepalive_s = mqtt.keepalive_s_max
        properties = self._properties(connect, broker, expiry_s, keepalive_s)
        answer = encoder.connack(connect.version, False, reasons.SUCCESS, properties)
        if connect.packet_size_max and len(answer) > connect.packet_size_max:
            problem = f"CONNACK has {len(answer)} bytes, the client takes {connect.packet_size_max}"
            raise RefusedError.because(reasons.PACKET_TOO_LARGE, problem)
        broker.refuse_if_overtaken(connection, connect.client_id)
        discards = connect.clean_start and broker.sessions.is_stored(connect.client_id)
        session, present = broker.open_session(connect, expiry_s)
        session.attach(
            connect.version,
            min(connect.receive_max, mqtt.inflight_max),
            connect.packet_size_max,
            min(connect.alias_max, mqtt.topic_alias_max),
        )
        session.connection = connection
        if will is not None:
            broker.wills.register(session, will, broker.clock.now_ms())
        connection.request_problem = connect.request_problem
        connection.username = identity.username
        connection.online(session, acl, keepalive_s)
        durable = session.persistent or will is not None or discards
        if durable:
            session.gate = broker.runner.number  # nothing leaves before CONNACK
        answer = encoder.connack(connect.version, present, reasons.SUCCESS, properties)
        connection.answer(answer, durable)
        broker.client_joined(connection, session, identity)
        if not self._method:
            connection.handshake = None
        self._connect = None

    def _properties(
        self, connect: Connect, broker: Broker, expiry_s: int, keepalive_s: int
    ) -> bytes:
        """What CONNACK tells an MQTT 5 client about its session and about us."""
        if connect.version != V5:
            return b""
        mqtt = broker.settings.mqtt
        parts = [
            p.write_number(p.RECEIVE_MAXIMUM, mqtt.receive_max),
            p.write_number(p.MAXIMUM_PACKET_SIZE, mqtt.packet_size_bytes_max),
            p.write_number(p.TOPIC_ALIAS_MAXIMUM, mqtt.topic_alias_max),
        ]
        if expiry_s != max(0, connect.session_expiry_s):
            parts.append(p.write_number(p.SESSION_EXPIRY, expiry_s))
        if self._assigned:
            parts.append(p.write_value(p.ASSIGNED_CLIENT_ID, connect.client_id.encode()))
        if keepalive_s != connect.keepalive_s:
            parts.append(p.write_number(p.SERVER_KEEP_ALIVE, keepalive_s))
        if mqtt.qos_max < 2:
            parts.append(p.write_number(p.MAXIMUM_QOS, mqtt.qos_max))
        for number, available in (
            (p.RETAIN_AVAILABLE, mqtt.retain_available),
            (p.WILDCARD_AVAILABLE, mqtt.wildcard_available),
            (p.SHARED_AVAILABLE, mqtt.shared_available),
        ):
            if not available:
                parts.append(p.write_number(number, 0))
        if connect.request_response and mqtt.response_information:
            text = mqtt.response_information.replace("${clientid}", connect.client_id)
            parts.append(p.write_value(p.RESPONSE_INFORMATION, text.encode()))
        if self._method:
            parts.append(p.write_value(p.AUTH_METHOD, self._method.encode()))
            if self._final:
                parts.append(p.write_value(p.AUTH_DATA, self._final))
        return b"".join(parts)

    def _refuse(self, reason: int, problem: str) -> None:
        connection = self._connection
        connect = self._connect
        assert connect is not None
        connection.broker.login_refused(connection, connect.client_id, reason, problem)
        properties = p.write_value(p.REASON_STRING, problem[:256].encode())
        words = encoder.connack(connect.version, False, reason, properties)
        connection.send(connection.told(words, encoder.connack(connect.version, False, reason)))
        connection.close(reason, problem)
