"""Fixtures of the clients' tests: a login that may only submit."""

from collections.abc import Iterator

import pytest

from cortex import SyncClient
from cortex.postgres.database import SUBMITTER_ROLE
from tests.support.logins import login_with


@pytest.fixture
def web(database: str) -> Iterator[str]:
    """The address of a login with the role cortex_submitter."""
    with login_with(database, SUBMITTER_ROLE) as dsn:
        yield dsn


@pytest.fixture
def shared(web: str) -> Iterator[SyncClient]:
    """A client of that login."""
    with SyncClient(web) as client:
        yield client
