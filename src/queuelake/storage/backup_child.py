"""Copying the store of this process: the work of a child, which opens the store for itself."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

from queuelake.errors import StorageError
from queuelake.storage.backup import KEEP_ID

ERROR_CHARACTERS_MAX: Final = 500


async def copy_in_child(source: Path, directory: Path, *, keep_id: bool = False) -> None:
    """`backup.copy_store`; the child is killed when this is cancelled.

    Raises:
        StorageError: there is no copy; in the words of the child.
    """
    options = [KEEP_ID] if keep_id else []
    command = [sys.executable, "-m", "queuelake.storage.backup", str(source), str(directory)]
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise StorageError(f"the copying did not start: {error.strerror}") from error
    try:
        _, words = await child.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        raise
    if child.returncode != 0:
        text = words.decode(errors="replace").strip()[-ERROR_CHARACTERS_MAX:]
        raise StorageError(text or f"the copying ended with {child.returncode}")
