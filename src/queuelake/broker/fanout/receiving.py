"""Triggers of QoS 2 which are being stored: one which comes again is the same one.

Their packet ids are part of the session when they are durable, not before: after a crash a platform
which sends one again must not hear that it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection
    from queuelake.broker.fanout.job import Job
    from queuelake.broker.runner import Runner
    from queuelake.broker.session import Session


@final
class Receiving:
    """By session and packet id: the trigger, and the connection over which it is answered."""

    __slots__ = ("_jobs", "_runner")

    def __init__(self, runner: Runner) -> None:
        self._runner: Final = runner
        self._jobs: dict[tuple[int, int], tuple[Job, Connection]] = {}

    def begin(
        self, job: Job, session: Session, packet_id: int, connection: Connection
    ) -> Callable[[bool], None]:
        """Returns who has to be told the end."""
        self._jobs[session.id, packet_id] = (job, connection)
        return lambda done: self._end(session, packet_id, done)

    def is_under_way(self, session: Session, packet_id: int, connection: Connection) -> bool:
        """Whether this one is being stored already; it is answered over this connection then."""
        found = self._jobs.get((session.id, packet_id))
        if found is None:
            return False
        job = found[0]
        job.connection = connection
        self._jobs[session.id, packet_id] = (job, connection)
        return True

    def refused(self, connection: Connection) -> None:
        for key in [key for key, (_, other) in self._jobs.items() if other is connection]:
            del self._jobs[key]

    def _end(self, session: Session, packet_id: int, done: bool) -> None:
        _, connection = self._jobs.pop((session.id, packet_id))
        if done and connection.session is not session:
            # Nobody was there to be answered: the platform sends it again.
            session.inbound.add(packet_id)
            if session.persistent:
                self._runner.store_cursor(session)
