"""A fake cluster for the screens."""

import pytest

from tests.support.terminal.tui import FakeBackend, ManualClock


@pytest.fixture
def cluster() -> FakeBackend:
    return FakeBackend(ManualClock())
