"""TLS: the server's certificate, and the user a client's certificate names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Final

from queuelake.errors import ConfigError
from queuelake.settings import Tls

# In what a node says of its client: whom it has proven to be, at another shard of the cluster.
PROVEN_USER: Final = "proven_user"
# And when its login began, by the clock of the node: see `Broker.refuse_if_overtaken`.
LOGIN_NS: Final = "login_ns"
# Attributes of a subject as RFC 4514 abbreviates them.
_SHORT_NAMES = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "emailAddress": "emailAddress",
}


def make_context(tls: Tls) -> ssl.SSLContext:
    """A server context; call `load_certificate` on it again to change the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, tls)
    if tls.client_certificate != "none":
        required = tls.client_certificate == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    """Use the certificate as it is on disk now, for connections from now on.

    Raises:
        ConfigError: a file is missing or is not what it should be; the former stays in use.
    """
    try:
        # A pair which does not fit must not get into the context in use.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key or None)
        context.load_cert_chain(tls.certificate, tls.key or None)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            [f"tls: certificate {tls.certificate!r} with key {tls.key!r} is refused: {error}"]
        ) from None


def certificate_user(transport: asyncio.BaseTransport, tls: Tls) -> str | None:
    """The user name in a verified client certificate, as `tls.username_from` says."""
    if tls.username_from == "none":
        return None
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return None
    subject: Iterable[Iterable[tuple[str, str]]] = certificate.get("subject", ())
    pairs = [pair for part in subject for pair in part]
    if tls.username_from == "cn":
        return next((value for name, value in reversed(pairs) if name == "commonName"), None)
    return ",".join(f"{_SHORT_NAMES.get(name, name)}={value}" for name, value in reversed(pairs))
