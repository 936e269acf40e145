"""Fixtures of the command line's tests: its processes, and what pods do meanwhile."""

from pathlib import Path

import pytest

from tests.support.command_line import Cortex


@pytest.fixture
def cortex(tmp_path: Path, database: str) -> Cortex:
    """The command line on a migrated database without rows."""
    return Cortex(tmp_path, database)


@pytest.fixture
def cortex_nowhere(tmp_path: Path) -> Cortex:
    """The command line without a database."""
    return Cortex(tmp_path)
