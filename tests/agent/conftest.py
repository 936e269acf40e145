"""A pod's place, by each means of confinement."""

import os
from collections.abc import Iterator

import pytest

from cortex.domain.confinement import Confinement
from tests.support.pod_place import CASES, USERS, Place, of_case


@pytest.fixture(params=CASES, ids="-".join)
def confined(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as root and as another user."""
    yield from of_case(*request.param)


@pytest.fixture(params=[each for each in CASES if USERS[each[1]] == os.geteuid()], ids="-".join)
def confined_as_me(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as the user that runs the tests."""
    yield from of_case(*request.param)
