"""The fixture of the pytest plugin, under a name that no other room's fixture has."""

from collections.abc import Iterator

import pytest

from cortex.testing import Cortex


@pytest.fixture
def harness() -> Iterator[Cortex]:
    with Cortex() as made:
        yield made
