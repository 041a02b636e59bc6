"""Hexadecimal, Base64, JSON, JSON Web Tokens."""

from __future__ import annotations

import binascii
from typing import Final

from queuelake.expressions.fields import Fields
from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, check_size, from_octets, integer, octets, text

URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
FROM_URL_SAFE: Final = bytes.maketrans(b"-_+/", b"+/??")  # '?' is refused by the decoder
NO_WHITE_SPACE: Final = b" \t\r\n"


def _to_hex(data: bytes) -> str:
    check_size(2 * len(data))
    return data.hex().upper()


def _from_hex(digits: bytes) -> Value:
    return from_octets(binascii.unhexlify(digits))


def _integer_to_hex(value: int) -> str:
    return f"{value:X}"


def _to_base64(data: bytes, *options: str) -> str:
    is_url_safe, is_unpadded = _base64_options(options)
    check_size(len(data) * 4 // 3)
    encoded = binascii.b2a_base64(data, newline=False)
    if is_url_safe:
        encoded = encoded.translate(URL_SAFE)
    if is_unpadded:
        encoded = encoded.rstrip(b"=")
    return encoded.decode()


def _from_base64(encoded: bytes, *options: str) -> Value:
    is_url_safe, is_unpadded = _base64_options(options)
    return from_octets(_decode_base64(encoded, is_url_safe, is_unpadded))


def _decode_base64(encoded: bytes, is_url_safe: bool, is_unpadded: bool) -> bytes:
    encoded = encoded.translate(FROM_URL_SAFE if is_url_safe else None, NO_WHITE_SPACE)
    if is_unpadded:
        encoded = encoded.rstrip(b"=")
        encoded += b"=" * (-len(encoded) % 4)
    return binascii.a2b_base64(encoded, strict_mode=True)


def _base64_options(options: tuple[str, ...]) -> tuple[bool, bool]:
    for option in options:
        if option not in ("urlsafe", "no_padding"):
            raise ValueError(f"no such option: {option!r}; use 'urlsafe' or 'no_padding'")
    return "urlsafe" in options, "no_padding" in options


def _json_value(fields: Fields, document: str, path: str) -> Value:
    """What stands at the dotted path; nothing when it is not there, or this is no JSON."""
    if not path:
        raise ValueError("the path is empty")
    value = fields.json(document)
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _jwt_value(fields: Fields, token: str, path: str) -> Value:
    """A claim of a token whose signature nobody looks at: it identifies, it proves nothing."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError(f"a token has 3 parts, this has {len(parts)}")
    claims = from_octets(_decode_base64(parts[1].encode(), True, True))
    return _json_value(fields, text(claims), path)


ENCODING: Final[dict[str, Function]] = {
    "bin2hexstr": Function(_to_hex, octets),
    "hexstr2bin": Function(_from_hex, octets),
    "int2hexstr": Function(_integer_to_hex, integer),
    "base64_encode": Function(_to_base64, octets, text, text, optional=2),
    "base64_decode": Function(_from_base64, octets, text, text, optional=2),
    "json_value": Function(_json_value, text, text, sees_fields=True),
    "jwt_value": Function(_jwt_value, text, text, sees_fields=True),
}
