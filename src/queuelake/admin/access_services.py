"""Users and permissions: the part of `Services` which has to do with who may do what."""

from __future__ import annotations

from queuelake import control_access as ops
from queuelake.apikey import Caller
from queuelake.control import ControlClient
from queuelake.control_access import LoggedIn

LOGIN_TIMEOUT_S = 30.0  # many clients may be hashing theirs


class AccessServices:
    def __init__(self, control: ControlClient) -> None:
        self._control = control

    async def log_in(self, name: str, password: str, ip: str = "") -> Caller | None:
        """Who this user of the console is; None: a wrong password, or a user without a role.

        The caller is called `user:NAME`, which no API key is. `ip` is where the user comes from:
        failed logins are counted by name and address, as those of clients are.

        Raises:
            AnswerError: with the code BANNED, after too many failed logins; come later.
        """
        args: dict[str, object] = {"name": name, "password": password, "ip": ip}
        found = await self._control.call(ops.LOG_IN, LoggedIn, args, LOGIN_TIMEOUT_S)
        return None if found.role is None else Caller(f"user:{name}", found.role)
