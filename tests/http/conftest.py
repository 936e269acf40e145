"""Fixtures of the API's tests: a real server on a database of the test's own.

A module whose tests do not disturb each other overrides `server` and `askers` with what is shared
here, since a server costs ten times what a request does.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cortex.http.framework.limits import Rate
from cortex.postgres.database import Profile
from tests.support.records.approvals import Askers
from tests.support.records.effects import Doers
from tests.support.servers.http_server import HttpServer, http_server
from tests.support.servers.kept_sessions import kept_session

PLENTY = Rate(burst=10**6, per_s=10**6)


@pytest.fixture
def own_server(database: str) -> Iterator[HttpServer]:
    """A server of all routes that listens on loopback, for one test."""
    with http_server(database) as running:
        yield running


@pytest.fixture
def own_askers(database: str) -> Iterator[Askers]:
    """Jobs that ask people, beside the test's own server."""
    with kept_session(Profile(dsn=database, hot_path=True)) as call:
        yield Askers(call, database)


@pytest.fixture
def server(own_server: HttpServer) -> HttpServer:
    return own_server


@pytest.fixture
def askers(own_askers: Askers) -> Askers:
    return own_askers


@pytest.fixture
def doers(database: str) -> Iterator[Doers]:
    """Jobs that do something outside, beside the server."""
    with kept_session(Profile(dsn=database, hot_path=True)) as call:
        yield Doers(call, database)


@pytest.fixture(scope="module")
def shared_server(shared_database: str) -> Iterator[HttpServer]:
    """A server on it, which locks nobody out however much is asked and guessed."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for place in ("framework.auth.MISSES_MAX", "framework.links.MISSES_MAX"):
                patch.setattr(f"cortex.http.{place}", PLENTY.burst)
            for place in ("framework.api.SIGN_IN_RATE", "framework.links.RATE"):
                patch.setattr(f"cortex.http.{place}", PLENTY)
            server = http_server(shared_database, address_rate=PLENTY, token_rate=PLENTY)
            running = stack.enter_context(server)
        yield running


@pytest.fixture(scope="module")
def shared_askers(shared_database: str) -> Iterator[Askers]:
    """Jobs that ask people, beside that server."""
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as call:
        yield Askers(call, shared_database)
