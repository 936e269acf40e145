"""One call's context, with a workspace of its own; a pod's place, by each means."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cortex.agent.tools.tool import ToolContext
from cortex.domain.confinement import Confinement
from tests.support.pod_place import CASES, USERS, Place, of_case


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return ToolContext(job_id=UUID(int=1), attempt=1, call_id="call_1", workspace=workspace)


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as root and as another user."""
    yield from of_case(*request.param)


@pytest.fixture(params=[each for each in CASES if USERS[each[1]] == os.geteuid()], ids="-".join)
def as_me(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as the user that runs the tests."""
    yield from of_case(*request.param)
