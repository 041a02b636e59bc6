"""Certificates for tests: one authority which signs server and client certificates.

Elliptic curve keys, because they are made in a millisecond; valid for a day around now.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Python 3.13 and later refuse an authority which does not say that it signs certificates.
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path
    serial: int


class Authority:
    """A certificate authority which lives in `directory`."""

    def __init__(self, directory: Path, common_name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        signed = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(constraints, critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = directory / "authority.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(self, file_name: str = "server") -> Identity:
        """Sign a certificate for localhost; the same file name overwrites, as a renewal does."""
        hosts = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        return self._issue("localhost", file_name, hosts)

    def client(self, common_name: str) -> Identity:
        return self._issue(common_name, f"client-{common_name}", None)

    def _issue(
        self, common_name: str, file_name: str, hosts: x509.SubjectAlternativeName | None
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(_name(common_name), self._name, key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts is not None:
            builder = builder.add_extension(hosts, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        identity = Identity(
            self._directory / f"{file_name}.pem",
            self._directory / f"{file_name}.key",
            signed.serial_number,
        )
        identity.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        identity.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return identity


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
