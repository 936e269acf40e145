"""Jobs in memory, and one database for the tests of a module."""

from collections.abc import Iterator

import pytest

from cortex.testing import Cortex
from tests.e2e.conftest import database, gate, pods
from tests.runtime.conftest import bench, port

__all__ = ["bench", "database", "gate", "pods", "port"]


@pytest.fixture
def harness() -> Iterator[Cortex]:
    with Cortex() as made:
        yield made
