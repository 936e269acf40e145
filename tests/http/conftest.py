"""Fixtures of the API's tests: a real server on a database of the test's own."""

from collections.abc import Iterator

import pytest

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.records.approvals import Askers
from tests.support.records.effects import Doers
from tests.support.servers.http_server import HttpServer, http_server


@pytest.fixture
def server(database: str) -> Iterator[HttpServer]:
    """A server of all routes that listens on loopback."""
    with http_server(database) as running:
        yield running


@pytest.fixture
def askers(database: str) -> Iterator[Askers]:
    """Jobs that ask people, beside the server."""
    with open_session(Profile(dsn=database, hot_path=True)) as call:
        yield Askers(call, database)


@pytest.fixture
def doers(database: str) -> Iterator[Doers]:
    """Jobs that do something outside, beside the server."""
    with open_session(Profile(dsn=database, hot_path=True)) as call:
        yield Doers(call, database)
