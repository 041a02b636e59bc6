"""What an operator asks of vehicle fan-out, over the control socket of a broker."""

from __future__ import annotations

from typing import Any

from tests.ecq.control import Operator, encoded


class Fanout(Operator):
    """The operations of `queuelake sdv`."""

    def status(self) -> Any:
        return self.call("sdv_status")

    def remaining(self) -> int:
        """How many rows wait, of all vehicles."""
        return int(self.status()["remaining_messages"])

    def inspect(self, vin: str) -> Any:
        return self.call("sdv_inspect", vin=vin)

    def pending(self, vin: str) -> list[str]:
        """The request ids of the rows of a vehicle, oldest first, with the one in flight."""
        return [one["request_id"] for one in self.inspect(vin)["pending"]]

    def request(self, request_id: str) -> Any:
        return self.call("sdv_request", request_id=request_id)

    def cancel(self, request_id: str, *vins: str) -> Any:
        return self.call("sdv_cancel", request_id=request_id, vins=list(vins))

    def collect(self) -> bool:
        """Start a garbage collection; False when one is under way."""
        return bool(self.call("sdv_gc")["started"])

    def configure(self, **settings: object) -> Any:
        return self.call("sdv_configure", settings=encoded(settings))

    def config(self) -> Any:
        return self.call("sdv_config")
