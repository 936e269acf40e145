"""Log lines of every test here are captured: a crash on purpose is no reason to print it."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """Log lines so far, one mapping each."""
    with capture_logs() as lines:
        yield lines
