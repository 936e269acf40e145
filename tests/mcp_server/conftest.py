"""Fixtures of the MCP server's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.postgres.database import Profile
from tests.support.life import Life
from tests.support.mcp_command import McpCommand
from tests.support.records.approvals import Askers
from tests.support.servers.kept_sessions import kept_session


@pytest.fixture(scope="module")
def life(shared_database: str) -> Iterator[Life]:
    """Jobs on the module's database."""
    with kept_session(Profile(dsn=shared_database)) as call:
        yield Life(call, shared_database)


@pytest.fixture(scope="module")
def askers(shared_database: str) -> Iterator[Askers]:
    """Jobs that ask people, on the module's database."""
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as call:
        yield Askers(call, shared_database)


@pytest.fixture
def mcp_command(shared_database: str, tmp_path: Path) -> Iterator[McpCommand]:
    """`cortex mcp` as a process of its own on the module's database, not started yet."""
    with McpCommand(shared_database, tmp_path) as command:
        yield command
