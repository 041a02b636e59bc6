"""What can be asked about backups which the broker makes.

As in control.py, the Structs are the answers of the broker and of the REST API alike.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

BACKUPS: Final = "backups"  # -> BackupList
BACKUP: Final = "backup"  # name -> BackupInfo
BACKUP_START: Final = "backup_start"  # name (empty: the time) -> BackupInfo
BACKUP_DELETE: Final = "backup_delete"  # name -> None

BACKUPS_MAX: Final = 1000
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class BackupInfo(Struct, frozen=True):
    name: str
    state: Annotated[
        Literal["running", "done", "failed", "incomplete"],
        Meta(description="incomplete: the broker ended before it was done"),
    ]
    path: Annotated[str, Meta(description="on the machine of the broker; `serve` it to restore")]
    bytes: int = 0
    bytes_max: Annotated[int, Meta(description="while running: it will have at most so many")] = 0
    changed_at_ms: Annotated[int, Meta(description="milliseconds since 1970 (UTC)")] = 0
    error: str = ""


class BackupList(Struct, frozen=True):
    """`backups`: sorted by name."""

    backups: list[BackupInfo]


class NewBackup(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        str, Meta(pattern=NAME_PATTERN, description="of its directory; without: the time")
    ] = ""
