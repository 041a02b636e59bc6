"""What clients may do, as the rules say now; when the rules change, connected clients follow.

A client keeps the permissions which were worked out at its login (`ClientAcl`). After a change they
are worked out again for everybody who is online, some at a time: the next packet of a client is
judged by the new rules once the change is answered. Subscriptions a client has already stay.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from queuelake.broker.auth.acl import SHIPPED_RULES, Acl, ClientAcl, vehicle_rules
from queuelake.broker.auth.authenticator import Authenticator, Identity
from queuelake.broker.auth.rulefile import RuleFile
from queuelake.broker.connection import Connection
from queuelake.protocol import reasons
from queuelake.settings import AclRule, Settings

CLIENTS_AT_ONCE: Final = 500


class Permissions:
    """The rules of one broker, and who is online under them.

    Raises:
        ConfigError: a rule of the configuration or of the file of rules is wrong.
    """

    def __init__(self, settings: Settings, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._file = RuleFile(Path(settings.data_dir).expanduser())
        self._vehicles = vehicle_rules(settings.sdv.topic_prefix)
        self._online: dict[Connection, Identity] = {}
        self.configured: list[AclRule] = settings.acl
        self.shipped: list[AclRule] = [*SHIPPED_RULES, *self._vehicles]
        self._use(self._file.read())

    def of(self, peer_ip: str, client_id: str, identity: Identity) -> ClientAcl:
        # Whoever has a name needs a rule; without users, nobody in particular may do everything.
        acl = self._anonymous if identity.username is None else self._acl
        return acl.for_client(
            client_id, identity.username, peer_ip, identity.platform, identity.rules
        )

    def joined(self, connection: Connection, identity: Identity) -> None:
        self._online[connection] = identity

    def left(self, connection: Connection) -> None:
        self._online.pop(connection, None)

    async def replace(self, rules: list[AclRule]) -> None:
        """Use these rules in the place of the former ones, and keep them.

        Raises:
            ConfigError: a rule is wrong; nothing was changed.
        """
        Acl(rules, False)
        await asyncio.to_thread(self._file.write, rules)
        self._use(rules)
        await self.renew()

    def reload(self) -> None:
        """Read the file again; on a ConfigError the former rules stay. `renew` afterwards."""
        self._use(self._file.read())

    async def renew(self) -> None:
        """Users or rules have changed: judge everybody who is online by them.

        Whoever logged in with a name which the files no longer have is disconnected.
        """
        for number, (connection, identity) in enumerate(list(self._online.items()), 1):
            self._renew(connection, identity)
            if number % CLIENTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _renew(self, connection: Connection, identity: Identity) -> None:
        session, name = connection.session, identity.username
        if session is None or connection not in self._online:
            return  # it left meanwhile
        if name is not None:
            if identity.of_file and not self._authenticator.is_user(name):
                connection.close(reasons.NOT_AUTHORIZED, "the user was removed")
                return
            identity.platform = self._authenticator.is_platform(name)
        connection.acl = self.of(connection.peer_ip, session.client_id, identity)
        connection.permitted = b""  # the topic which was allowed last

    def _use(self, rules: list[AclRule]) -> None:
        every = [*rules, *self.configured]
        self._acl = Acl(every, False, self._vehicles)
        self._anonymous = Acl(every, not self._authenticator.configured, self._vehicles)
        self.rules: list[AclRule] = rules
