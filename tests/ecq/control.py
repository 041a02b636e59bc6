"""What an operator asks of mailboxes, over the control socket of a broker."""

from __future__ import annotations

import json
from typing import Any

from queuelake.control_client import call
from tests.harness.broker import BrokerProcess

TIMEOUT_S = 15.0


class Operator:
    """Calls the operations of one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def call(self, operation: str, **arguments: object) -> Any:
        """The answer as plain dicts and lists.

        Raises:
            AnswerError: the broker said no.
        """
        return call(self._broker.data_dir, operation, arguments, TIMEOUT_S)


class Mailboxes(Operator):
    """The operations of `queuelake ecq`."""

    def status(self) -> Any:
        return self.call("ecq_status")

    def inspect(self, owner: str) -> Any:
        return self.call("ecq_inspect", owner=owner)

    def acked(self, owner: str) -> int:
        """The position of an owner; 0 before its first acknowledgement."""
        acked = self.inspect(owner)["acked"]
        return 0 if acked == "none" else int(acked)

    def collect(self) -> bool:
        """Start a garbage collection; False when one is under way."""
        return bool(self.call("ecq_gc")["started"])

    def rewind(self, owner: str, **body: object) -> int:
        """The position afterwards."""
        return int(self.call("ecq_rewind", owner=owner, body=encoded(body))["acked"])

    def configure(self, **settings: object) -> Any:
        return self.call("ecq_configure", settings=encoded(settings))

    def config(self) -> Any:
        return self.call("ecq_config")


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()
