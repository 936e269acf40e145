"""A server for the client of these tests."""

import pytest
import trio

from tests.support.servers.web_server import WebServer, open_server


@pytest.fixture
async def server(nursery: trio.Nursery) -> WebServer:
    return await open_server(nursery)
