"""Jobs in memory, with a scripted model."""

from collections.abc import Iterator

import pytest

from cortex.testing import Cortex


@pytest.fixture
def harness() -> Iterator[Cortex]:
    with Cortex() as made:
        yield made
