"""Who changed what: the audit log, as it is asked for and answered."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

AUDIT: Final = "audit"  # limit, cursor, caller, operation, target -> AuditPage

ENTRIES_PER_PAGE_MAX: Final = 1_000


class AuditEntry(Struct, frozen=True, omit_defaults=True):
    """One change, or one which was refused. Ids grow."""

    id: int
    at_ms: Annotated[int, Meta(description="milliseconds since 1970 (UTC)")]
    caller: Annotated[str, Meta(description="name of the API key; `local`: from a shell")]
    operation: str
    target: Annotated[str, Meta(description="what was changed")] = ""
    arguments: Annotated[dict[str, Any], Meta(description="what was asked for")] = {}
    before: Annotated[Any, Meta(description="how it was")] = None
    after: Annotated[Any, Meta(description="what was answered")] = None
    refused: Annotated[str, Meta(description="why it was not done")] = ""


class AuditPage(Struct, frozen=True):
    """`audit`: the newest first."""

    entries: list[AuditEntry]
    next: Annotated[str | None, Meta(description="`cursor` of the next page; null: no more")] = None
