"""Fixtures of the hostile tests: attempts to do what docs/threat-model.md says nobody can do.

A module holds the attempts of one kind as data: who tries, what, and how it is refused. All of them
together take at most 60 s, as root and as any other user.
"""

import os
from collections.abc import Iterator

import pytest

from cortex.domain.confinement import Confinement
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from tests.support.pod_place import CASES, USERS, Place, of_case
from tests.support.servers.http_server import HttpServer, http_server
from tests.support.servers.kept_sessions import kept_session


@pytest.fixture(scope="module")
def server(shared_database: str) -> Iterator[HttpServer]:
    """A server on it."""
    with http_server(shared_database) as running:
        yield running


@pytest.fixture
def store(shared_database: str) -> Iterator[Session]:
    """Calls store methods with the role and the settings of a pod's sessions."""
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as session:
        yield session


@pytest.fixture(params=[each for each in CASES if USERS[each[1]] == os.geteuid()], ids="-".join)
def confined_as_me(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means to confine programs, as the user that runs the tests."""
    yield from of_case(*request.param)
