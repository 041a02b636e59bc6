"""Somebody at a page: whatever they ask for passes here, in their name and as far as they may.

A page calls `await visit.do(Services.purge_queue, name)`. The session, the role and the name in the
audit are checked and set for each call; a button which is hidden is only a courtesy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

from queuelake.admin.auth import RoleTooLowError
from queuelake.admin.console.directory import Directory
from queuelake.admin.console.sampler import Sampler
from queuelake.admin.console.session import Session, SessionEndedError, Sessions
from queuelake.admin.roles import role_for
from queuelake.admin.services import Services
from queuelake.apikey import Caller, Role
from queuelake.control import CALLER
from queuelake.errors import QueuelakeError

P = ParamSpec("P")
T = TypeVar("T")


class Visit:
    """One page in one tab, and whose it is."""

    def __init__(
        self,
        services: Services,
        sessions: Sessions,
        session: Session,
        sampler: Sampler,
        directory: Directory,
    ) -> None:
        self.sampler = sampler
        self.directory = directory
        self.session_id = session.id
        self._services = services
        self._sessions = sessions
        self._session = session

    @property
    def caller(self) -> Caller:
        """Raises SessionEndedError when nobody is logged in any more."""
        caller = self._sessions.caller(self._session)
        if caller is None:
            raise SessionEndedError("the session has ended; log in again")
        return caller

    async def stands(self) -> bool:
        """Whether somebody is still logged in, as far as the broker answers."""
        with contextlib.suppress(QueuelakeError):
            await self._sessions.ask_about_user(self._session)
        return self._sessions.caller(self._session) is not None

    def is_at_least(self, role: Role) -> bool:
        return self.caller.may(role)

    def may(self, service: Callable[..., Awaitable[object]]) -> bool:
        """Whether to offer this at all."""
        return self.caller.may(role_for(service.__name__))

    async def do(
        self,
        service: Callable[Concatenate[Services, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Ask for something in the name of whoever is here.

        Raises:
            SessionEndedError: they have to log in again.
            RoleTooLowError: their role is too low.
            QueuelakeError: the broker said no, or nothing.
        """
        self._sessions.used(self._session)
        return await self.look(service, *args, **kwargs)

    async def look(
        self,
        service: Callable[Concatenate[Services, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same for what a page repeats by itself: it keeps no session alive."""
        await self._sessions.ask_about_user(self._session)
        caller, needed = self.caller, role_for(service.__name__)
        if not caller.may(needed):
            words = f"{caller.name!r} has the role {caller.role}; this needs {needed}"
            raise RoleTooLowError(words)
        token = CALLER.set(caller.name)
        try:
            return await service(self._services, *args, **kwargs)
        finally:
            CALLER.reset(token)

    def log_out(self) -> None:
        self._sessions.end(self._session)
