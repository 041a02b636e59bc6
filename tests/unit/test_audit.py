"""The file of the audit log: bounded, read from its end, and not hurt by a line cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuelake.broker import audit
from queuelake.broker.audit import Audit
from queuelake.control import Request


async def note(log: Audit, number: int, **args: object) -> None:
    request = Request(number, "queue_purge", {"name": f"q{number}", **args}, "me")
    await log.note(request, None, {"purged": number}, "")


async def targets(log: Audit, **args: object) -> list[str]:
    return [entry.target for entry in (await log.page(args)).entries]


async def test_a_full_file_makes_room_and_ids_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES_MAX", 500)
    monkeypatch.setattr(audit, "READ_BYTES", 7)
    for number in range(1, 13):
        log = Audit(tmp_path, lambda: 1)  # each time as after a restart
        await note(log, number)
        log.close()
    log = Audit(tmp_path, lambda: 1)
    page = await log.page({"limit": 1000})
    log.close()
    ids = [entry.id for entry in page.entries]
    assert ids == list(range(12, 12 - len(ids), -1))
    assert 2 <= len(ids) < 12
    assert {path.name for path in tmp_path.iterdir()} == {"audit.jsonl", "audit.jsonl.1"}


async def test_a_line_which_was_cut_is_left_out(tmp_path: Path) -> None:
    log = Audit(tmp_path, lambda: 1)
    await note(log, 1)
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"id": 2, "at')
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b"\n")
    await note(log, 2)
    assert await targets(log) == ["q2", "q1"]
    log.close()


@pytest.mark.parametrize(
    "body", [b'{"a": "\xff"}', b"{", b"\x00", b"[" * 20_000, b"[" * 960 + b"]" * 960]
)
async def test_whatever_a_body_holds_is_written_down_and_read(tmp_path: Path, body: bytes) -> None:
    log = Audit(tmp_path, lambda: 1)
    await note(log, 1, changes=body)
    (entry,) = (await log.page({})).entries
    log.close()
    text = body.decode(errors="replace")
    assert entry.arguments["changes"] in (text, f'20002 bytes, from "{text[:199]}')


async def test_long_values_are_shortened(tmp_path: Path) -> None:
    log = Audit(tmp_path, lambda: 1)
    await note(log, 1, changes=b'"' + b"x" * 100_000 + b'"')
    (entry,) = (await log.page({})).entries
    assert entry.arguments["changes"].startswith("100002 bytes, from ")
    log.close()


async def test_a_number_no_field_can_be_is_written_as_text(tmp_path: Path) -> None:
    log = Audit(tmp_path, lambda: 1)
    await note(log, 1, changes=b'{"partitions": %d}' % 10**30)
    (entry,) = (await log.page({})).entries
    assert str(10**30) in entry.arguments["changes"]
    log.close()
