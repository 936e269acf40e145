"""Fixtures of the command line's tests: its processes, and what pods do meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.store.database import Profile
from cortex.store.session import open_session
from tests.support.command_line import Cortex
from tests.support.life import Life


@pytest.fixture
def cortex(tmp_path: Path, database: str) -> Cortex:
    """The command line on a migrated database without rows."""
    return Cortex(tmp_path, database)


@pytest.fixture
def cortex_nowhere(tmp_path: Path) -> Cortex:
    """The command line without a database."""
    return Cortex(tmp_path)


@pytest.fixture
def life(database: str) -> Iterator[Life]:
    """What pods do, on the same database."""
    with open_session(Profile(dsn=database)) as call:
        yield Life(call, database)
