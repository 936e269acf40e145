"""One stage for all tests of faults: it takes seconds to build, and each test leaves it whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.playing import Playing
from tests.support.servers.postgres import make_home, remove_servers


@pytest.fixture(scope="session")
def one_stage(run_dir: Path) -> Iterator[Playing]:
    """The stage of this worker."""
    folder = make_home(run_dir)
    playing = Playing(folder)
    yield playing
    playing.close()
    remove_servers(folder)


@pytest.fixture
def playing(one_stage: Playing) -> Iterator[Playing]:
    """A stage on which nothing is broken, neither before nor after the test."""
    one_stage.until_whole()
    yield one_stage
    one_stage.end_all()
    one_stage.until_whole()
