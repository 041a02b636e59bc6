"""Tokens: keys, algorithms, times, audience, issuer and claims; whatever is wrong is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from queuelake.broker.auth.tokens import TokenVerifier
from queuelake.errors import BadCredentialsError, ConfigError
from queuelake.settings import Jwt

NOW = 1_800_000_000.0
SECRET = "0123456789abcdef0123456789abcdef"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_EC_KEY = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def token(claims: dict[str, Any], key: Any = SECRET, alg: str = "HS256", **header: Any) -> bytes:
    return jwt.encode(claims, key, algorithm=alg, headers=header).encode()


def key_file(folder: Path, key: Any) -> str:
    path = folder / "key.pem"
    path.write_bytes(pem(key))
    return str(path)


def jwks_file(folder: Path, *entries: dict[str, Any]) -> str:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": list(entries)}), encoding="utf-8")
    return str(path)


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if key is RSA_KEY else jwt.algorithms.ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), **more}


def test_user_name_and_expiry_come_from_the_claims() -> None:
    found = TokenVerifier(Jwt(secret=SECRET)).verify(token({"sub": "ann", "exp": NOW + 5}), NOW)
    assert (found.username, found.expires_at, found.rules) == ("ann", NOW + 5, [])
    other = TokenVerifier(Jwt(secret=SECRET, username_claim="name"))
    assert other.verify(token({"name": "bob"}), NOW).expires_at is None


def test_rsa_and_ec_keys_from_a_file(tmp_path: Path) -> None:
    for key, alg in ((RSA_KEY, "RS256"), (EC_KEY, "ES256")):
        verifier = TokenVerifier(Jwt(public_key_file=key_file(tmp_path, key)))
        assert verifier.verify(token({"sub": "ann"}, key, alg), NOW).username == "ann"
    with pytest.raises(BadCredentialsError):
        verifier.verify(token({"sub": "ann"}, OTHER_EC_KEY, "ES256"), NOW)


def test_keys_of_a_jwks_are_chosen_by_kid(tmp_path: Path) -> None:
    path = jwks_file(
        tmp_path,
        jwk(RSA_KEY, kid="r"),
        jwk(EC_KEY, kid="e1"),
        jwk(OTHER_EC_KEY, kid="e2"),
        jwk(RSA_KEY, kid="enc", use="enc"),
        {"kty": "strange"},
    )
    verifier = TokenVerifier(Jwt(jwks_file=path))
    assert verifier.verify(token({"sub": "a"}, EC_KEY, "ES256", kid="e1"), NOW).username == "a"
    assert verifier.verify(token({"sub": "a"}, OTHER_EC_KEY, "ES256", kid="e2"), NOW)
    assert verifier.verify(token({"sub": "a"}, RSA_KEY, "RS256"), NOW), "the only RSA key"
    for bad in (
        token({"sub": "a"}, EC_KEY, "ES256", kid="e2"),
        token({"sub": "a"}, EC_KEY, "ES256", kid="gone"),
        token({"sub": "a"}, EC_KEY, "ES256"),  # two keys would fit
        token({"sub": "a"}, RSA_KEY, "RS256", kid="e1"),
        token({"sub": "a"}, RSA_KEY, "RS256", kid="enc"),
    ):
        with pytest.raises(BadCredentialsError):
            verifier.verify(bad, NOW)


def test_a_jwk_with_an_algorithm_serves_only_that_one(tmp_path: Path) -> None:
    path = jwks_file(tmp_path, jwk(RSA_KEY, kid="r", alg="RS256"))
    verifier = TokenVerifier(Jwt(jwks_file=path, algorithms=["RS256", "RS512"]))
    assert verifier.verify(token({"sub": "a"}, RSA_KEY, "RS256", kid="r"), NOW)
    with pytest.raises(BadCredentialsError):
        verifier.verify(token({"sub": "a"}, RSA_KEY, "RS512", kid="r"), NOW)


def part(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def test_a_public_key_is_never_an_hmac_secret(tmp_path: Path) -> None:
    verifier = TokenVerifier(
        Jwt(public_key_file=key_file(tmp_path, RSA_KEY), algorithms=["HS256", "RS256"])
    )
    signing_input = part({"alg": "HS256", "typ": "JWT"}) + b"." + part({"sub": "ann"})
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        signing_input, pem(RSA_KEY)
    )
    forged = signing_input + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    with pytest.raises(BadCredentialsError):
        verifier.verify(forged, NOW)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 5, ["HS256"]])
def test_a_token_without_an_allowed_algorithm_is_refused(alg: object) -> None:
    forged = part({"alg": alg}) + b"." + part({"sub": "ann"}) + b"."
    with pytest.raises(BadCredentialsError):
        TokenVerifier(Jwt(secret=SECRET, algorithms=["HS256", "none"])).verify(forged, NOW)


def test_an_algorithm_outside_the_list_is_refused() -> None:
    verifier = TokenVerifier(Jwt(secret=SECRET, algorithms=["HS512"]))
    with pytest.raises(BadCredentialsError):
        verifier.verify(token({"sub": "ann"}), NOW)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": ""},
        {"sub": 5},
        {"sub": "\ud800"},
        {"sub": "a", "exp": NOW},
        {"sub": "a", "exp": "soon"},
        {"sub": "a", "exp": True},
        {"sub": "a", "exp": None},
        {"sub": "a", "exp": float("inf")},
        {"sub": "a", "exp": 10**400},
        {"sub": "a", "nbf": NOW + 1},
        {"sub": "a", "nbf": []},
        {"sub": "a", "acl": "all"},
        {"sub": "a", "acl": 5},
        {"sub": "a", "acl": ["a/#"]},
        {"sub": "a", "acl": [{"permission": "maybe", "topics": ["a"]}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["a"], "other": 1}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["a/#/b"]}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["\ud800"]}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["a"], "clientid_re": "("}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["a"], "ip": "x"}]},
        {"sub": "a", "acl": [{"permission": "allow", "topics": ["a"]}] * 257},
        {"sub": "a", "acl": {"pub": ["a"], "write": ["b"]}},
        {"sub": "a", "acl": {"pub": "a"}},
        {"sub": "a", "acl": {"pub": ["a"] * 1025}},
    ],
)
def test_bad_claims_are_a_refusal(claims: dict[str, Any]) -> None:
    # By hand: PyJWT's encoder refuses some of these itself.
    signing_input = part({"alg": "HS256"}) + b"." + part(claims)
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(signing_input, SECRET.encode())
    made = signing_input + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    with pytest.raises(BadCredentialsError):
        TokenVerifier(Jwt(secret=SECRET)).verify(made, NOW)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"eyJ..",
        b"eyJ.eyJ.eyJ",
        b"\xff.\xff.\xff",
        b"a.b.c",
        part({"alg": "HS256"}) + b".e30.x",
    ],
)
def test_garbage_is_a_refusal(garbage: bytes) -> None:
    with pytest.raises(BadCredentialsError):
        TokenVerifier(Jwt(secret=SECRET)).verify(garbage, NOW)


def test_deeply_nested_claims_are_a_refusal() -> None:
    signing_input = part({"alg": "HS256"}) + b"."
    signing_input += base64.urlsafe_b64encode(b'{"sub":' + b"[" * 30_000).rstrip(b"=")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(algorithm.sign(signing_input, SECRET.encode()))
    with pytest.raises(BadCredentialsError):
        TokenVerifier(Jwt(secret=SECRET)).verify(signing_input + b"." + signature, NOW)


def test_audience_and_issuer_must_fit_when_configured() -> None:
    verifier = TokenVerifier(Jwt(secret=SECRET, audience="mq", issuer="me"))
    good = {"sub": "a", "aud": "mq", "iss": "me"}
    assert verifier.verify(token(good), NOW)
    assert verifier.verify(token({**good, "aud": ["x", "mq"]}), NOW)
    wrong: list[dict[str, Any]] = [{"aud": "x"}, {"iss": "x"}, {"aud": None}, {"iss": None}]
    for bad in [*wrong, {"aud": []}]:
        claims = {name: value for name, value in {**good, **bad}.items() if value is not None}
        with pytest.raises(BadCredentialsError):
            verifier.verify(token(claims), NOW)
    assert TokenVerifier(Jwt(secret=SECRET)).verify(token(good), NOW), "not asked for: not checked"


def test_the_acl_claim_in_both_forms() -> None:
    verifier = TokenVerifier(Jwt(secret=SECRET))
    listed = [{"permission": "deny", "topics": ["a/${clientid}"], "action": "publish"}]
    rules = verifier.verify(token({"sub": "a", "acl": listed}), NOW).rules
    assert [(one.permission, one.action, one.topics) for one in rules] == [
        ("deny", "publish", ["a/${clientid}"])
    ]
    lists = {"pub": ["p"], "sub": ["s/#"], "all": ["x"]}
    rules = verifier.verify(token({"sub": "a", "acl": lists}), NOW).rules
    assert [(one.permission, one.action, one.topics) for one in rules] == [
        ("allow", "publish", ["p"]),
        ("allow", "subscribe", ["s/#"]),
        ("allow", "all", ["x"]),
    ]


def test_wrong_key_files_are_config_errors(tmp_path: Path) -> None:
    path = tmp_path / "file"
    missing = Jwt(public_key_file=str(tmp_path / "none"), jwks_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError) as caught:
        TokenVerifier(missing)
    assert len(caught.value.mistakes) == 2
    for content in ("", "hello", '{"keys": []}', "[]", '{"keys": [{"kty": "RSA", "n": 1}]}'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError):
            TokenVerifier(Jwt(jwks_file=str(path)))
        with pytest.raises(ConfigError):
            TokenVerifier(Jwt(public_key_file=str(path)))


def test_a_password_is_not_taken_for_a_token() -> None:
    assert TokenVerifier.recognizes(token({"sub": "a"}))
    assert not TokenVerifier.recognizes(b"pass.word.x")
    assert not TokenVerifier.recognizes(b"eyJ")
