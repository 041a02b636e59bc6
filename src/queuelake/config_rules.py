"""Rules the types alone cannot express: files, expressions, keys which need each other.

Every rule is a generator of findings. A finding names the keys it rests on, the decisive one first:
the loader says where that one came from, and drops the finding when one of the keys was already
refused.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Iterator
from typing import NamedTuple

from queuelake.settings import Jwt, Listener, Settings, authentication_configured

JWT_ALGORITHMS = (
    *("HS256", "HS384", "HS512"),
    *("RS256", "RS384", "RS512"),
    *("ES256", "ES384", "ES512"),
    *("PS256", "PS384", "PS512", "EdDSA"),
)
UNIX_PATH_BYTES_MAX = 107
TOPIC_BYTES_MAX = 65_535


class Finding(NamedTuple):
    keys: tuple[str, ...]
    message: str


def findings(settings: Settings) -> Iterator[Finding]:
    """Everything that is wrong with settings whose single values have the right type."""
    yield from _places(settings)
    yield from _tls(settings)
    yield from _wide_listeners(settings)
    yield from _jwt(settings.auth.jwt)
    for key, path in (
        ("auth.password_file", settings.auth.password_file),
        ("auth.scram_file", settings.auth.scram_file),
    ):
        yield from readable(key, path)
    yield from _acl(settings)
    yield from _bans(settings)
    yield from _storage(settings)


def tcp_listeners(settings: Settings) -> list[tuple[str, Listener]]:
    """The MQTT listeners which will open a TCP port, by the name of their section."""
    listeners = settings.listeners
    opened = [("listeners.mqtt", listeners.mqtt), ("listeners.ws", listeners.ws)]
    if settings.tls.certificate:
        opened += [("listeners.mqtts", listeners.mqtts), ("listeners.wss", listeners.wss)]
    return [(key, listener) for key, listener in opened if listener.enabled]


def is_loopback(bind: str) -> bool:
    """True for an address only this machine can reach; a name other than localhost is not one."""
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return False


def _places(settings: Settings) -> Iterator[Finding]:
    if not settings.data_dir:
        yield Finding(("data_dir",), 'data_dir = "": allowed: the path of a directory')
    taken: dict[tuple[str, int], str] = {}
    ports = [(key, one.bind, one.port) for key, one in tcp_listeners(settings)]
    if settings.http.enabled:
        ports.append(("http", settings.http.bind, settings.http.port))
    if settings.http.enabled and settings.grpc.enabled:
        ports.append(("grpc", settings.grpc.bind, settings.grpc.port))
    if settings.flight.enabled:
        ports.append(("flight", settings.flight.bind, settings.flight.port))
    for key, bind, port in ports:
        other = taken.setdefault((bind, port), key)
        if other != key and port != 0:
            message = f"{key}.port = {port}: already used by {other}.port; choose another"
            yield Finding((f"{key}.port", f"{other}.port", f"{key}.bind"), message)
    unix = settings.listeners.unix
    if len(os.fsencode(unix.path)) > UNIX_PATH_BYTES_MAX:
        message = f"{len(os.fsencode(unix.path))} bytes; allowed: at most {UNIX_PATH_BYTES_MAX}"
        yield Finding(
            ("listeners.unix.path",), f'listeners.unix.path = "{unix.path}": has {message}'
        )
    if re.fullmatch("0?[0-7]{3}", unix.mode) is None:
        message = f'listeners.unix.mode = "{unix.mode}": allowed: octal permissions such as "0660"'
        yield Finding(("listeners.unix.mode",), message)


def _tls(settings: Settings) -> Iterator[Finding]:
    tls, grpc, flight = settings.tls, settings.grpc, settings.flight
    yield from key_pair("tls", tls.certificate, tls.key)
    yield from key_pair("grpc", grpc.certificate, grpc.key)
    yield from key_pair("flight", flight.certificate, flight.key)
    yield from authorities("tls.client_ca", tls.client_ca)
    if tls.client_certificate != "none" and not tls.client_ca:
        message = (
            f'tls.client_certificate = "{tls.client_certificate}": needs tls.client_ca, '
            "the file of the certificates which sign those of clients"
        )
        yield Finding(("tls.client_certificate", "tls.client_ca"), message)


def authorities(key: str, path: str) -> Iterator[Finding]:
    """What is wrong with a file of certificates which sign others; nothing when there is none."""
    unreadable = list(readable(key, path))
    yield from unreadable
    if path and not unreadable:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            yield Finding((key,), f'{key} = "{path}": holds no usable certificate: {error}')


def key_pair(section: str, certificate: str, key: str) -> Iterator[Finding]:
    """What is wrong with a certificate and its key, both of them paths in one section."""
    names = (f"{section}.certificate", f"{section}.key")
    unreadable = [*readable(names[0], certificate), *readable(names[1], key)]
    yield from unreadable
    if certificate and not key:
        message = f'{names[0]} = "{certificate}": needs {names[1]}, the file of its key'
        yield Finding(names, message)
    elif key and not certificate:
        message = f'{names[1]} = "{key}": needs {names[0]}, the file of its certificate'
        yield Finding(names[::-1], message)
    elif certificate and not unreadable:
        yield from _certificate_pair(names, certificate, key)


def _certificate_pair(names: tuple[str, str], certificate: str, key: str) -> Iterator[Finding]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password here OpenSSL would ask on the terminal and the start would hang.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        message = (
            f'{names[0]} = "{certificate}": cannot be used with {names[1]} = "{key}": {error}; '
            "allowed: a PEM certificate and its own PEM key without a pass phrase"
        )
        yield Finding(names, message)


def _wide_listeners(settings: Settings) -> Iterator[Finding]:
    if authentication_configured(settings) or settings.auth.allow_anonymous is True:
        return
    tls = settings.tls
    # The broker takes the user from the certificate there, and lets nobody in without one.
    proven = tls.client_certificate == "required" and tls.username_from != "none"
    encrypted = ("listeners.mqtts", "listeners.wss")
    for key, listener in tcp_listeners(settings):
        if not is_loopback(listener.bind) and not (proven and key in encrypted):
            message = (
                f'{key}.bind = "{listener.bind}": is reachable from other machines and no '
                "authentication is configured; set auth.password_file, auth.scram_file or a key in "
                'auth.jwt, or bind to "127.0.0.1", or set auth.allow_anonymous = true'
            )
            yield Finding((f"{key}.bind", "auth", "tls.client_certificate"), message)


def _jwt(jwt: Jwt) -> Iterator[Finding]:
    yield from readable("auth.jwt.public_key_file", jwt.public_key_file)
    yield from readable("auth.jwt.jwks_file", jwt.jwks_file)
    key = "auth.jwt.algorithms"
    for algorithm in jwt.algorithms:
        if algorithm not in JWT_ALGORITHMS:
            allowed = ", ".join(JWT_ALGORITHMS)
            yield Finding((key,), f'{key} holds "{algorithm}": allowed: {allowed}')
    if not jwt.algorithms:
        yield Finding((key,), f"{key} = []: allowed: at least one of {', '.join(JWT_ALGORITHMS)}")


def readable(key: str, path: str) -> Iterator[Finding]:
    """Why a file cannot be read; nothing for an empty path."""
    if not path:
        return
    reason = ""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            reason = "Is a directory"
        elif not os.access(path, os.R_OK):
            reason = "Permission denied"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        message = f'{key} = "{path}": cannot be read: {reason}; allowed: a file this user can read'
        yield Finding((key,), message)


def _acl(settings: Settings) -> Iterator[Finding]:
    for index, rule in enumerate(settings.acl):
        where = f"acl[{index}]"
        for name, pattern in (("clientid_re", rule.clientid_re), ("username_re", rule.username_re)):
            reason = _pattern_mistake(pattern)
            if reason:
                key = f"{where}.{name}"
                message = f'{key} = "{pattern}": is not an RE2 expression: {reason}'
                yield Finding((key,), message)
        yield from _network(f"{where}.ip", rule.ip)
        key = f"{where}.topics"
        if not rule.topics:
            yield Finding((key,), f"{key} = []: allowed: at least one topic filter")
        for topic in rule.topics:
            reason = filter_mistake(topic.removeprefix("eq "))
            if reason:
                yield Finding((key,), f'{key} holds "{topic}": {reason}')


def _bans(settings: Settings) -> Iterator[Finding]:
    for index, ban in enumerate(settings.bans):
        where = f"bans[{index}]"
        yield from _network(f"{where}.ip", ban.ip)
        if not (ban.clientid or ban.username or ban.ip):
            message = f"{where}: names nobody; allowed: clientid, username or ip"
            yield Finding((where, "bans"), message)


def _network(key: str, text: str) -> Iterator[Finding]:
    if not text:
        return
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        allowed = 'allowed: an address or a network such as "10.0.0.0/8"'
        yield Finding((key,), f'{key} = "{text}": {error}; {allowed}')


def _pattern_mistake(pattern: str) -> str:
    if not pattern:
        return ""
    # Imported here: slow, and most configurations hold no expression.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return ""


def filter_mistake(topic_filter: str) -> str:
    """Why this is no topic filter, or "" when it is one; `${clientid}` counts as text."""
    if not topic_filter:
        return "is empty; allowed: a topic filter of at least one character"
    if "\0" in topic_filter:
        return "holds a null character"
    size = len(topic_filter.encode("utf-8", "surrogatepass"))
    if size > TOPIC_BYTES_MAX:
        return f"has {size} bytes; allowed: at most {TOPIC_BYTES_MAX}"
    levels = topic_filter.split("/")
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != len(levels) - 1):
            return "# may only be the whole last level"
        if "+" in level and level != "+":
            return "+ may only be a whole level"
    return ""


def _storage(settings: Settings) -> Iterator[Finding]:
    storage = settings.storage
    if storage.map_size_bytes_initial > storage.map_size_bytes_max:
        message = (
            f"storage.map_size_bytes_initial = {storage.map_size_bytes_initial}: allowed: at most "
            f"storage.map_size_bytes_max = {storage.map_size_bytes_max}"
        )
        yield Finding(("storage.map_size_bytes_initial", "storage.map_size_bytes_max"), message)
