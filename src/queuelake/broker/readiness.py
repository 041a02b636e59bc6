"""Whether the broker can serve clients now."""

from __future__ import annotations

from queuelake.broker.core import Broker


def problems(broker: Broker) -> list[str]:
    """Every reason why it cannot."""
    found = []
    if broker.runner.failure:
        found.append(f"store: {broker.runner.failure}")
        found.append("sdv: tables_not_ready")
    if broker.stopping:
        found.append("broker is shutting down")
    return found
