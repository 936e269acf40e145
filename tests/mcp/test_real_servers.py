"""Real servers, confined as agents have them."""

import sys
from pathlib import Path

import trio

from cortex.agent.mcp.sessions import Sessions
from cortex.agent.mcp.terms import McpServer
from tests.mcp.conftest import AgentJob, listed, wanted
from tests.support.agent_turns import Script, calls, says

VENV = sys.prefix


async def test_git_server_reads_the_repository_of_the_job(folder: Path) -> None:
    terms = McpServer(
        command=[f"{VENV}/bin/python", "-m", "mcp_server_git"], reads=[VENV], folder="read"
    )
    job = AgentJob(folder, {"git": terms}, {"tools": ()})
    workspace = folder / str(job.claim.lease.job_id)
    workspace.mkdir()
    await trio.run_process(["git", "init", "-q", "-b", "main", str(workspace)])
    (workspace / "new.txt").write_text("new\n")
    script = Script([calls(("git__git_status", {"repo_path": "."})), says("done")])
    await job.run(script)
    assert "On branch main" in script.last_results[0]
    assert "new.txt" in script.last_results[0]
    assert "git__git_commit" in [each["name"] for each in script.asked[0].tools]


async def test_git_server_believes_its_hints_only_if_trusted(
    folder: Path, sessions: Sessions
) -> None:
    terms = McpServer(command=[f"{VENV}/bin/python", "-m", "mcp_server_git"], reads=[VENV])
    found = {each.name: each for each in await listed(sessions, wanted(folder, terms, name="git"))}
    assert found["git_status"].read_only
    assert not found["git_commit"].read_only
