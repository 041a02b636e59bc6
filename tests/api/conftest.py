from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.live import LiveAdmin


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[LiveAdmin]:
    live = LiveAdmin(tmp_path)
    yield live
    live.close()
