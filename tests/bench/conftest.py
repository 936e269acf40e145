"""Fixtures of measurements: programs on a database, or without one."""

from pathlib import Path

import pytest

from tests.support.command_line import Cortex


@pytest.fixture
def cortex(tmp_path: Path, database: str) -> Cortex:
    return Cortex(tmp_path, database)


@pytest.fixture
def cortex_nowhere(tmp_path: Path) -> Cortex:
    return Cortex(tmp_path)
