"""A backup which cannot be made says why; one which was interrupted is not taken for one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from queuelake.broker.backups import Backups
from queuelake.control_backup import BackupInfo
from queuelake.storage.memory import MemoryStore


async def test_what_fails_says_why_and_makes_room_for_the_next(tmp_path: Path) -> None:
    backups = Backups(tmp_path, MemoryStore())
    ended = asyncio.Event()
    backups.on_end = ended.set
    begun = await backups.start({"name": "none"})
    assert begun.state == "running"
    await ended.wait()
    failed = backups.backup({"name": "none"})
    assert failed.state == "failed"
    assert str(tmp_path / "store") in failed.error
    await backups.delete({"name": "none"})
    assert backups.backups({}).backups == []


async def test_what_is_being_made_at_the_end_is_given_up(tmp_path: Path) -> None:
    backups = Backups(tmp_path, MemoryStore())
    begun: BackupInfo = await backups.start({"name": "late"})
    await backups.close()
    assert begun.state == "running"
    assert backups.backup({"name": "late"}).state == "incomplete"
