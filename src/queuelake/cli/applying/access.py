"""Users, `[users.name]`, and the rules of the ACL, `[[acl]]`.

A broker never tells a password or a hash, so nobody can see whether one would change: passwords
are set when a user is made, and of those who are there only when that is asked for.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Final, get_args

import msgspec

from queuelake.broker.auth.userfile import username_mistake
from queuelake.cli.applying.change import SECRET, Change, Table, difference
from queuelake.cli.rest import Rest, path
from queuelake.config import read_rules
from queuelake.control_access import RoleOrNone
from queuelake.errors import ConfigError
from queuelake.settings import AclRule

SECRETS: Final = ("password", "password_hash", "password_env")
ROLES: Final = get_args(RoleOrNone)


def plan_users(
    rest: Rest, table: Table, prune: bool, mistakes: list[str], *, passwords: bool = False
) -> list[Change]:
    present = {one["name"]: one for one in rest.pages(path("users"), "users")}
    changes: list[Change] = []
    for name, tree in table.items():
        where = f"users.{json.dumps(name, ensure_ascii=False)}"
        found = present.get(name)
        wrong = _mistakes(where, name, tree)
        if wrong:
            mistakes += wrong
            continue
        assert isinstance(tree, dict)
        granted = {key: tree[key] for key in ("role", "platform") if key in tree}
        secret: Table = {}
        if found is None or (passwords and any(key in tree for key in SECRETS)):
            secret = _secret(where, tree, mistakes)
        shown = dict.fromkeys(secret, SECRET)
        if found is None:
            put = partial(rest.call, "PUT", path("users", name), secret | granted)
            changes.append(Change("create", "user", name, {}, shown | granted, put))
            continue
        before, after = difference({key: found[key] for key in granted}, granted)
        if after or secret:
            patch = partial(rest.call, "PATCH", path("users", name), secret | after)
            changes.append(Change("change", "user", name, before, after | shown, patch))
    if prune:
        changes += [
            Change(
                "delete", "user", name, {}, {}, partial(rest.call, "DELETE", path("users", name))
            )
            for name in present
            if name not in table
        ]
    return changes


def export_users(rest: Rest) -> Table:
    """Without a secret: nobody can tell it."""
    return {
        one["name"]: {"role": one["role"], "platform": one["platform"]}
        for one in rest.pages(path("users"), "users")
    }


def plan_rules(rest: Rest, rules: object, mistakes: list[str]) -> list[Change]:
    try:
        wanted = read_rules("", rules)
    except ConfigError as error:
        mistakes += error.mistakes
        return []
    found = rest.get(path("acl"))
    present = msgspec.convert(found["rules"], list[AclRule])
    if present == wanted:
        return []
    before, after = _numbered(present, wanted), _numbered(wanted, present)
    body = {"rules": msgspec.to_builtins(wanted)}
    # Who changed the rules since they were read here is not overwritten.
    match = {"If-Match": f'"{found["version"]}"'}
    put = partial(rest.call, "PUT", path("acl"), body, headers=match)
    return [Change("change", "acl", "", before, after, put)]


def export_rules(rest: Rest) -> list[object]:
    return [_said(rule) for rule in msgspec.convert(rest.get(path("acl"))["rules"], list[AclRule])]


def _mistakes(where: str, name: str, tree: object) -> list[str]:
    if not isinstance(tree, dict):
        return [f"{where}: not a table"]
    found = [
        f"{where}.{key}: there is no such key; allowed: role, platform, {', '.join(SECRETS)}"
        for key in tree
        if key not in ("role", "platform", *SECRETS)
    ]
    if mistake := username_mistake(name):
        found.append(f"{where}: the name {mistake}")
    if "role" in tree and tree["role"] not in ROLES:
        found.append(f"{where}.role = {json.dumps(tree['role'])}: allowed: {', '.join(ROLES)}")
    if "platform" in tree and not isinstance(tree["platform"], bool):
        found.append(f"{where}.platform: allowed: true, false")
    given = [key for key in SECRETS if key in tree]
    found += [
        f"{where}.{key}: allowed: a text which is not empty"
        for key in given
        if not isinstance(tree[key], str) or not tree[key]
    ]
    if len(given) > 1:
        found.append(f"{where}: holds {' and '.join(given)}; allowed: one of them")
    return found


def _secret(where: str, tree: Table, mistakes: list[str]) -> Table:
    variable = tree.get("password_env")
    if isinstance(variable, str):
        password = os.environ.get(variable, "")
        if not password:
            mistakes.append(f"{where}.password_env: the environment has no {variable}")
        return {"password": password}
    secret: Table = {key: tree[key] for key in ("password", "password_hash") if key in tree}
    if not secret:
        mistakes.append(f"{where}: a new user needs one of {', '.join(SECRETS)}")
    return secret


def _numbered(rules: list[AclRule], others: list[AclRule]) -> Table:
    """The rules which are not the same in the same place of the others."""
    return {
        f"[{number}]": _said(rule)
        for number, rule in enumerate(rules)
        if others[number : number + 1] != [rule]
    }


def _said(rule: AclRule) -> Table:
    from queuelake.broker.auth.rulefile import table_of

    return table_of(rule)
