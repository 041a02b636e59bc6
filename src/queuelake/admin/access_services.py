"""Users, permissions and backups: the part of `Services` which is for admins."""

from __future__ import annotations

from msgspec import structs

from queuelake import control_access as ops
from queuelake import control_backup as backup_ops
from queuelake.control_access import (
    AclInForce,
    AclRules,
    ConsoleUser,
    NewUser,
    UserChange,
    UserInfo,
    UserPage,
)
from queuelake.control_backup import BackupInfo, BackupList
from queuelake.control_client import ControlClient

# Many clients may be hashing their passwords, and all who are online follow a change.
ACCESS_TIMEOUT_S = 30.0


class AccessServices:
    def __init__(self, control: ControlClient) -> None:
        self._control = control

    async def log_in(self, name: str, password: str, ip: str = "") -> ConsoleUser:
        """What this user is in the console; no role: a wrong password, or a user without one.

        `ip` is where the user comes from: failed logins are counted by name and address, as those
        of clients are.

        Raises:
            AnswerError: with the code BANNED, after too many failed logins; come later.
        """
        args: dict[str, object] = {"name": name, "password": password, "ip": ip}
        return await self._control.call(ops.LOG_IN, ConsoleUser, args, ACCESS_TIMEOUT_S)

    async def console_user(self, name: str) -> ConsoleUser:
        """The same for somebody who logged in before; no role: not any more."""
        return await self._control.call(ops.CONSOLE_USER, ConsoleUser, {"name": name})

    async def users(self, limit: int, cursor: str) -> UserPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor}
        return await self._control.call(ops.USERS, UserPage, args)

    async def user(self, name: str) -> UserInfo:
        return await self._control.call(ops.USER, UserInfo, {"name": name})

    async def add_user(self, name: str, user: NewUser) -> UserInfo:
        args: dict[str, object] = {"name": name, **structs.asdict(user)}
        return await self._control.call(ops.USER_ADD, UserInfo, args, ACCESS_TIMEOUT_S)

    async def change_user(self, name: str, change: UserChange) -> UserInfo:
        args: dict[str, object] = {"name": name, **structs.asdict(change)}
        return await self._control.call(ops.USER_CHANGE, UserInfo, args, ACCESS_TIMEOUT_S)

    async def delete_user(self, name: str) -> None:
        await self._control.call(ops.USER_DELETE, object, {"name": name}, ACCESS_TIMEOUT_S)

    async def acl(self) -> AclInForce:
        return await self._control.call(ops.ACL, AclInForce)

    async def replace_acl(self, rules: bytes, version: str) -> AclRules:
        """Keep these rules, JSON as `NewRules`, if the former ones are of this version; `*`: any.

        Raises:
            AnswerError: 400, one mistake for each wrong rule; 412 when somebody else was faster.
        """
        args: dict[str, object] = {"rules": rules, "version": version}
        return await self._control.call(ops.ACL_REPLACE, AclRules, args, ACCESS_TIMEOUT_S)

    async def backups(self) -> BackupList:
        return await self._control.call(backup_ops.BACKUPS, BackupList)

    async def backup(self, name: str) -> BackupInfo:
        return await self._control.call(backup_ops.BACKUP, BackupInfo, {"name": name})

    async def start_backup(self, name: str = "") -> BackupInfo:
        """Begin one, called by the time when it has no name; ask `backup` how far it has come."""
        return await self._control.call(backup_ops.BACKUP_START, BackupInfo, {"name": name})

    async def delete_backup(self, name: str) -> None:
        args: dict[str, object] = {"name": name}
        await self._control.call(backup_ops.BACKUP_DELETE, object, args, ACCESS_TIMEOUT_S)
