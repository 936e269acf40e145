"""One call's context, with a workspace of its own."""

from pathlib import Path
from uuid import UUID

import pytest

from cortex.agent.tools.tool import ToolContext


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return ToolContext(job_id=UUID(int=1), attempt=1, call_id="call_1", workspace=workspace)
