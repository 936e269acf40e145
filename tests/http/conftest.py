"""Fixtures of the API's tests: a real server on a database of the test's own."""

from collections.abc import Iterator

import pytest

from tests.support.http_server import HttpServer, http_server


@pytest.fixture
def server(database: str) -> Iterator[HttpServer]:
    """A server of all routes that listens on loopback."""
    with http_server(database) as running:
        yield running
