"""REST of backups: only for the role admin, see auth.py."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import read_body, read_struct, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_backup import BackupInfo, BackupList, NewBackup

BACKUP_PATH = f"/api/v1/backup/{{name:{SEGMENT}}}"
BODY_BYTES_MAX = 4096
TAGS: list[Any] = ["backups"]

Name = Annotated[str, Path(min_length=1, description="The name of the backup.")]


def add_backup_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/backup", tags=TAGS, responses=returns(BackupList))
    async def backups() -> Response:
        """The backups in the data directory, by name, also those which are not complete."""
        return answer(await services.backups())

    @app.post(
        "/api/v1/backup",
        tags=TAGS,
        status_code=202,
        responses=returns(BackupInfo, 202),
        openapi_extra=takes(NewBackup, required=False),
    )
    async def start(request: Request) -> Response:
        """Begin a backup; 409 while another one is made, or when the name is taken."""
        body = await read_body(request, BODY_BYTES_MAX)
        wanted = read_struct(body, NewBackup) if body else NewBackup()
        return answer(await services.start_backup(wanted.name), 202)

    @app.get(BACKUP_PATH, tags=TAGS, responses=returns(BackupInfo))
    async def backup(name: Name) -> Response:
        """One backup: whether it is done, and how far it has come."""
        return answer(await services.backup(name))

    @app.delete(BACKUP_PATH, tags=TAGS, status_code=204)
    async def delete(name: Name) -> Response:
        """Delete a backup; 409 while it is made."""
        await services.delete_backup(name)
        return Response(status_code=204)
