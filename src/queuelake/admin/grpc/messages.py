"""Answers as messages: the Structs which REST shows as JSON, field by field of the same name.

A field which is missing in a Struct is a mistake which the first call shows; one which is missing
in the `.proto` is found by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf import json_format

from queuelake.errors import RefusedError

# What is called otherwise over gRPC, where pages have names of their own.
ATTRIBUTES = {"next_page_token": "next"}
TREE = "google.protobuf.Struct"


def fill(message: Any, source: object) -> None:
    """Put everything of `source` into `message`; None stays away."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(source, ATTRIBUTES.get(field.name, field.name))
        if value is not None:
            _put(message, field, value)


def _put(message: Any, field: Any, value: Any) -> None:
    if field.message_type is None:
        if field.is_repeated:
            getattr(message, field.name).extend(value)
        else:
            setattr(message, field.name, value)
        return
    target = getattr(message, field.name)
    if field.message_type.full_name == TREE:
        target.update(msgspec.to_builtins(value))
    elif isinstance(value, Mapping):
        target.update(value)
    elif not field.is_repeated:
        fill(target, value)
    else:
        for one in value:
            if isinstance(one, tuple):  # a user property
                target.add(name=one[0], value=one[1])
            else:
                fill(target.add(), one)


def read_tree(tree: Any) -> Any:
    """What a google.protobuf.Struct says, as JSON would say it."""
    try:
        return _with_integers(json_format.MessageToDict(tree))
    except ValueError as error:
        raise RefusedError(f"settings: {error}") from error


def _with_integers(value: Any) -> Any:
    """Every number of a Struct is a float; 4 becomes an integer again."""
    if isinstance(value, dict):
        return {key: _with_integers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_integers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
