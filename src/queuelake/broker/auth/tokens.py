"""JSON Web Tokens in the password of CONNECT: signature, times, audience, issuer, user name, ACL.

The algorithm is never the token's choice alone. It must be in `auth.jwt.algorithms`, and each key
was sorted at load time into the algorithms that fit its type: a public key is never used as an
HMAC secret, and `none` does not exist. Whatever is wrong with a token, the answer is
BadCredentialsError; its cause is in `__cause__`, for the log.

The ACL claim is a list of rules in the grammar of `[[acl]]`, or allow lists:
`{"pub": [...], "sub": [...], "all": [...]}`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, final

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from queuelake.broker.auth.matchers import check_rules
from queuelake.errors import BadCredentialsError, ConfigError
from queuelake.settings import AclRule, Jwt

log = logging.getLogger(__name__)

TOKEN_RULES_MAX: Final = 256
TOKEN_TOPICS_MAX: Final = 1024
SECRET_BYTES_MIN: Final = 32  # RFC 7518: as long as the hash
HMAC: Final = ("HS256", "HS384", "HS512")
RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
JWK_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


@final
class TokenIdentity:
    """What a good token says."""

    __slots__ = ("expires_at", "rules", "username")

    def __init__(self, username: str, rules: list[AclRule], expires_at: float | None) -> None:
        self.username = username
        self.rules = rules
        self.expires_at = expires_at


@final
class TokenKey:
    """A key, the algorithms it may be used with, and its `kid` when it came from a JWKS."""

    __slots__ = ("algorithms", "key", "kid")

    def __init__(self, key: Any, algorithms: tuple[str, ...], kid: str | None) -> None:
        self.key = key
        self.algorithms = algorithms
        self.kid = kid


@final
class TokenVerifier:
    """Checks tokens against `auth.jwt`.

    Raises:
        ConfigError: a key file cannot be read or holds no usable key.
    """

    __slots__ = ("_fixed", "_jwks", "_settings")

    def __init__(self, settings: Jwt) -> None:
        self._settings = settings
        mistakes: list[str] = []
        self._fixed: list[TokenKey] = []
        self._jwks: list[TokenKey] = []
        if settings.secret:
            if len(settings.secret.encode()) < SECRET_BYTES_MIN:
                log.warning("auth.jwt.secret is shorter than %d bytes", SECRET_BYTES_MIN)
            self._fixed.append(TokenKey(settings.secret.encode(), HMAC, None))
        if settings.public_key_file:
            self._fixed += _load(_public_key, settings.public_key_file, mistakes)
        if settings.jwks_file:
            self._jwks = _load(_jwks, settings.jwks_file, mistakes)
        if mistakes:
            raise ConfigError(mistakes)

    @staticmethod
    def recognizes(password: bytes) -> bool:
        """Three base64 parts, the first a JSON object: no hash tells it from a password."""
        return password.startswith(b"eyJ") and password.count(b".") == 2

    def verify(self, token: bytes, now: float) -> TokenIdentity:
        """Raises BadCredentialsError for whatever is wrong with the token."""
        try:
            claims = self._claims(token)
            expires_at = _check_times(claims, now)
            username = claims.get(self._settings.username_claim)
            if not isinstance(username, str) or not username:
                raise ValueError(f"claim {self._settings.username_claim!r} is no user name")
            username.encode("utf-8")  # JSON may hold half a surrogate pair; topics may not
            rules = _acl_rules(claims.get(self._settings.acl_claim))
        except (jwt.PyJWTError, ValueError, ConfigError, RecursionError) as error:
            raise BadCredentialsError("token refused") from error
        return TokenIdentity(username, rules, expires_at)

    def _claims(self, token: bytes) -> Mapping[str, Any]:
        settings = self._settings
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in settings.algorithms:
            raise ValueError("algorithm is not in auth.jwt.algorithms")
        key = self._key_for(algorithm, header.get("kid"))
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=settings.audience or None,
            issuer=settings.issuer or None,
            options={
                # The times are checked against our own clock, below.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_aud": bool(settings.audience),
                "verify_sub": False,
                "verify_jti": False,
                "require": [
                    *(["aud"] if settings.audience else []),
                    *(["iss"] if settings.issuer else []),
                ],
            },
        )
        return claims

    def _key_for(self, algorithm: str, kid: object) -> TokenKey:
        """By `kid` from the JWKS, else a configured key, else the only fitting one of the JWKS."""
        fitting = [key for key in self._jwks if algorithm in key.algorithms]
        named = [key for key in fitting if kid is not None and key.kid == kid]
        fixed = [key for key in self._fixed if algorithm in key.algorithms]
        if named:
            return named[0]
        if fixed:
            return fixed[0]
        if kid is None and len(fitting) == 1:
            return fitting[0]
        raise ValueError("no key fits the token's algorithm and key id")


def _check_times(claims: Mapping[str, Any], now: float) -> float | None:
    expires_at = _time_claim(claims, "exp")
    not_before = _time_claim(claims, "nbf")
    if expires_at is not None and now >= expires_at:
        raise ValueError("token has expired")
    if not_before is not None and now < not_before:
        raise ValueError("token is not valid yet")
    return expires_at


def _time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"claim {name!r} is no number")
    try:
        seconds = float(value)
    except OverflowError as error:
        raise ValueError(f"claim {name!r} is too large") from error
    if not math.isfinite(seconds):
        raise ValueError(f"claim {name!r} is not finite")
    return seconds


def _acl_rules(claim: object) -> list[AclRule]:
    if claim is None:
        return []
    if isinstance(claim, dict):
        rules = _allow_lists(claim)
    else:
        rules = msgspec.convert(claim, list[AclRule])  # its ValidationError is a ValueError
    if len(rules) > TOKEN_RULES_MAX:
        raise ValueError(f"{len(rules)} ACL rules; allowed: at most {TOKEN_RULES_MAX}")
    topics = sum(len(rule.topics) for rule in rules)
    if topics > TOKEN_TOPICS_MAX:
        raise ValueError(f"{topics} ACL topics; allowed: at most {TOKEN_TOPICS_MAX}")
    check_rules(rules, "token acl")
    return rules


def _allow_lists(claim: Mapping[str, Any]) -> list[AclRule]:
    unknown = set(claim) - {"pub", "sub", "all"}
    if unknown:
        raise ValueError(f"unknown keys in the ACL claim: {len(unknown)}")
    lists = {name: msgspec.convert(topics, list[str]) for name, topics in claim.items()}
    rules: list[AclRule] = []
    if lists.get("pub"):
        rules.append(AclRule("allow", lists["pub"], action="publish"))
    if lists.get("sub"):
        rules.append(AclRule("allow", lists["sub"], action="subscribe"))
    if lists.get("all"):
        rules.append(AclRule("allow", lists["all"], action="all"))
    return rules


def _load(
    parse: Callable[[bytes], list[TokenKey]], path: str, mistakes: list[str]
) -> list[TokenKey]:
    try:
        keys = parse(Path(path).read_bytes())
    except OSError as error:
        mistakes.append(f"{path}: cannot be read: {error}")
        return []
    except (ValueError, TypeError, UnsupportedAlgorithm, jwt.PyJWTError) as error:
        mistakes.append(f"{path}: holds no usable key: {type(error).__name__}: {error}")
        return []
    if not keys:
        mistakes.append(f"{path}: holds no key for signatures; allowed: oct, RSA, EC, Ed25519")
    return keys


def _public_key(pem: bytes) -> list[TokenKey]:
    if b"BEGIN CERTIFICATE" in pem:
        key: Any = load_pem_x509_certificate(pem).public_key()
    else:
        key = load_pem_public_key(pem)
    if isinstance(key, rsa.RSAPublicKey):
        return [TokenKey(key, RSA, None)]
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in CURVES:
        return [TokenKey(key, (CURVES[key.curve.name],), None)]
    if isinstance(key, ed25519.Ed25519PublicKey):
        return [TokenKey(key, ("EdDSA",), None)]
    raise ValueError("the key is not RSA, not EC on P-256, P-384 or P-521, and not Ed25519")


def _jwks(data: bytes) -> list[TokenKey]:
    document = json.loads(data)
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('must be a JSON object with a list "keys"')
    keys: list[TokenKey] = []
    for entry in entries:
        # Published sets hold keys for other purposes too; those are not ours to judge.
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        algorithms = _jwk_algorithms(entry)
        if not algorithms:
            continue
        kid = entry.get("kid")
        key = jwt.PyJWK(entry, algorithms[0]).key
        keys.append(TokenKey(key, algorithms, kid if isinstance(kid, str) else None))
    return keys


def _jwk_algorithms(entry: Mapping[str, Any]) -> tuple[str, ...]:
    kind, curve, only = entry.get("kty"), entry.get("crv"), entry.get("alg")
    fitting: Iterable[str] = ()
    if kind == "oct":
        fitting = HMAC
    elif kind == "RSA":
        fitting = RSA
    elif kind == "EC" and curve in JWK_CURVES:
        fitting = (JWK_CURVES[str(curve)],)
    elif kind == "OKP" and curve == "Ed25519":
        fitting = ("EdDSA",)
    return tuple(name for name in fitting if only is None or name == only)
