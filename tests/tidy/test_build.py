"""The build under test is the one the run was started for."""

import os

import pytest

from queuelake import protocol


@pytest.mark.skipif("QUEUELAKE_BUILD" not in os.environ, reason="started without scripts/test")
def test_the_hot_modules_are_of_the_expected_build() -> None:
    compiled = not str(protocol.__file__).endswith(".py")
    assert ("compiled" if compiled else "interpreted") == os.environ["QUEUELAKE_BUILD"]
