from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shipping.machine import Machine, bare_machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with bare_machine(tmp_path) as made:
        yield made
