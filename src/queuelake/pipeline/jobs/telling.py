"""Telling the broker how far a job is, so that the console and REST can show and cancel it."""

from __future__ import annotations

from queuelake.errors import QueuelakeError
from queuelake.flight import JobAnswer, JobTold
from queuelake.pipeline.jobs.job import Place, connect


class BrokerTeller:
    """A connection of its own, which never waits for a broker that is away."""

    def __init__(self, place: Place) -> None:
        self._connection = connect(place, retry_s="0")

    def tell(self, told: JobTold) -> JobAnswer:
        return self._connection.job(told)


def broker_teller(place: Place) -> BrokerTeller | None:
    """Nobody, when it is not known how to reach the broker: not every job needs it."""
    try:
        return BrokerTeller(place)
    except QueuelakeError:
        return None
