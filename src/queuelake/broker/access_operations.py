"""What the admin process and the CLI may ask about users and permissions: see control_access.py.

Changes come one after the other. Each is in its file before it is in force, and in force for
everybody who is online before it is answered.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from queuelake import control_access as ops
from queuelake.broker.auth.passwords import NOBODY, Grants
from queuelake.broker.auth.rulefile import version_of
from queuelake.broker.auth.useredit import Secret, UserEditor
from queuelake.broker.core import Broker
from queuelake.broker.operation import Operation, page_limit
from queuelake.config import read_rules
from queuelake.control_access import (
    AclInForce,
    AclRules,
    ConsoleUser,
    NewUser,
    RoleOrNone,
    UserChange,
    UserInfo,
    UserPage,
)
from queuelake.errors import (
    BadSettingsError,
    ChangedError,
    ConfigError,
    NotFoundError,
    RefusedError,
)

T = TypeVar("T")

log = logging.getLogger("queuelake.access")


class AccessOperations:
    """Each method answers one named request; whatever hashes or writes runs in a thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._permissions = broker.permissions
        self._authenticator = broker.authenticator
        auth = broker.settings.auth
        self._enforced = bool(auth.password_file)
        self._configured_platform = frozenset(auth.platform_users)
        scram = Path(auth.scram_file) if auth.scram_file else None
        self._editor = UserEditor(self._authenticator.users_path, scram)
        self._changing = asyncio.Lock()

    def table(self) -> dict[str, Operation]:
        return {
            ops.LOG_IN: self.log_in,
            ops.CONSOLE_USER: self.console_user,
            ops.USERS: self.users,
            ops.USER: self.user,
            ops.USER_ADD: self.add_user,
            ops.USER_CHANGE: self.change_user,
            ops.USER_DELETE: self.delete_user,
            ops.ACL: self.acl,
            ops.ACL_RULES: self.acl_rules,
            ops.ACL_REPLACE: self.replace_acl,
            ops.ACCESS_RELOAD: self.reload,
        }

    async def log_in(self, args: dict[str, object]) -> ConsoleUser:
        name, password, ip = _text(args, "name"), _text(args, "password"), _text(args, "ip")
        check = partial(self._authenticator.log_in, name, password.encode(errors="replace"), ip)
        return await self._broker.hashing(check)

    def console_user(self, args: dict[str, object]) -> ConsoleUser:
        users = self._authenticator.users
        return NOBODY if users is None else users.console_user(_text(args, "name"))

    # Users

    def users(self, args: dict[str, object]) -> UserPage:
        limit, cursor = page_limit(args), _text(args, "cursor")
        users = self._authenticator.users
        names = users.names() if users is not None else []
        page = heapq.nsmallest(limit + 1, (name for name in names if name > cursor))
        more = len(page) > limit
        shown = [self._info(name) for name in page[:limit]]
        return UserPage(shown, self._enforced, page[limit - 1] if more else None)

    def user(self, args: dict[str, object]) -> UserInfo:
        name = _text(args, "name")
        users = self._authenticator.users
        if users is None or name not in users:
            raise NotFoundError(f"there is no user {name!r}")
        return self._info(name)

    async def add_user(self, args: dict[str, object]) -> UserInfo:
        name, new = _text(args, "name"), _body(args, NewUser)
        granted = Grants(None if new.role == "none" else new.role, new.platform)

        def add() -> None:
            self._editor.add(name, Secret(new.password or "", new.password_hash or ""), granted)

        await self._change(add)
        return self.user(args)

    async def change_user(self, args: dict[str, object]) -> UserInfo:
        name, wanted = _text(args, "name"), _body(args, UserChange)
        self.user(args)

        def change() -> None:
            secret = None
            if wanted.password is not None or wanted.password_hash is not None:
                secret = Secret(wanted.password or "", wanted.password_hash or "")
            users = self._authenticator.users
            role, platform = users.grants(name) if users is not None else Grants()
            if wanted.role is not None:
                role = None if wanted.role == "none" else wanted.role
            if wanted.platform is not None:
                platform = wanted.platform
            self._editor.change(name, secret, Grants(role, platform))

        await self._change(change)
        return self.user(args)

    async def delete_user(self, args: dict[str, object]) -> None:
        """Clients which are connected by this name are disconnected."""
        name = self.user(args).name
        await self._change(partial(self._editor.remove, name))

    async def _change(self, change: Callable[[], None]) -> None:
        def work() -> None:
            self._authenticator.reload()  # a file which somebody broke is said, and left alone
            change()
            self._authenticator.reload()

        async with self._changing:
            try:
                await self._broker.hashing(work)
            except OSError as error:
                path = self._authenticator.users_path
                raise RefusedError(f"users: {path} cannot be written: {error.strerror}") from error
            await self._permissions.renew()

    def _info(self, name: str) -> UserInfo:
        users = self._authenticator.users
        assert users is not None
        granted = users.grants(name)
        role: RoleOrNone = granted.role or "none"
        return UserInfo(name, role, granted.platform, name in self._configured_platform)

    # Rules

    def acl(self, _: dict[str, object]) -> AclInForce:
        rules = self._permissions.rules
        configured, shipped = self._permissions.configured, self._permissions.shipped
        return AclInForce(version_of(rules), rules, configured, shipped)

    def acl_rules(self, _: dict[str, object]) -> AclRules:
        rules = self._permissions.rules
        return AclRules(version_of(rules), rules)

    async def replace_acl(self, args: dict[str, object]) -> AclRules:
        body, version = args.get("rules"), _text(args, "version")
        assert isinstance(body, bytes)
        try:
            rules = read_rules("", _rules(body))
        except ConfigError as error:
            raise BadSettingsError(error.mistakes) from error
        async with self._changing:
            now = version_of(self._permissions.rules)
            if version not in (ops.ANY_VERSION, now):
                raise ChangedError(f"the rules have the version {now!r}, not {version!r}")
            try:
                await self._permissions.replace(rules)
            except OSError as error:
                raise RefusedError(f"rules cannot be written: {error.strerror}") from error
        return self.acl_rules({})

    # Both

    async def reload(self, _: dict[str, object]) -> None:
        """Another broker of this machine has changed the files."""
        async with self._changing:
            try:
                await self._broker.hashing(self._authenticator.reload)
                self._permissions.reload()
            except ConfigError as error:
                log.error("users and rules are kept as they were: %s", error)
            await self._permissions.renew()


def _rules(body: bytes) -> object:
    expected = 'the body is {"rules": [...]}'
    try:
        found = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"{expected}: {error}") from error
    rules = found.get("rules")
    if found.keys() != {"rules"} or not isinstance(rules, list):
        raise RefusedError(expected)
    if len(rules) > ops.RULES_MAX:
        raise RefusedError(f"{len(rules)} rules; the limit is {ops.RULES_MAX}")
    # Null is how an answer says that nothing is said: what was read can be sent back as it is.
    return [_without_nulls(rule) for rule in rules]


def _without_nulls(rule: object) -> object:
    if not isinstance(rule, dict):
        return rule
    return {key: value for key, value in rule.items() if value is not None}


def _body(args: dict[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert({k: value for k, value in args.items() if k != "name"}, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(str(error)) from error


def _text(args: dict[str, object], name: str) -> str:
    return str(args.get(name, ""))
