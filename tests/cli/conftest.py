"""Fixtures of the command line's tests: its processes, and what pods do meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Cortex
from tests.support.pods import Pods


@pytest.fixture
def cortex(tmp_path: Path, database: str) -> Cortex:
    """The command line on a migrated database without rows."""
    return Cortex(tmp_path, database)


@pytest.fixture
def cortex_nowhere(tmp_path: Path) -> Cortex:
    """The command line without a database."""
    return Cortex(tmp_path)


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on the same database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()
