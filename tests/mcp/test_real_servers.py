"""Real servers, confined as agents have them: two of PyPI, three of npm."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from cortex.agent.mcp.terms import McpServer
from tests.mcp.conftest import AgentJob
from tests.support.agent_turns import Script, calls, says
from tests.support.outside_programs import NODE, node_server
from tests.support.servers.web_server import open_server

VENV = sys.prefix


def python_server(module: str, *arguments: str, **terms: Any) -> McpServer:
    command = [f"{VENV}/bin/python", "-m", module, *arguments]
    return McpServer(command=command, reads=[VENV], **terms)


def js_server(name: str, *arguments: str, **terms: Any) -> McpServer:
    program = node_server(name)
    node = NODE.needed()
    modules = next(each for each in program.parents if each.name == "node_modules")
    return McpServer(command=[node, str(program), *arguments], reads=[str(modules)], **terms)


async def answers(job: AgentJob, *uses: tuple[str, Any]) -> list[str]:
    """Have the model call tools, one a turn; return what it was given."""
    script = Script([*(calls(each) for each in uses), says("done")])
    await job.run(script)
    return [each.messages[-1]["content"][0]["content"] for each in script.asked[1:]]


def files_of(job: AgentJob) -> Path:
    made = job.folder / str(job.claim.lease.job_id)
    made.mkdir(exist_ok=True)
    return made


async def test_git_reads_the_repository_of_the_job(folder: Path) -> None:
    job = AgentJob(folder, {"git": python_server("mcp_server_git", folder="read", trusted=True)})
    workspace = files_of(job)
    await trio.run_process(["git", "init", "-q", "-b", "main", str(workspace)])
    (workspace / "new.txt").write_text("new\n")
    (status,) = await answers(job, ("git__git_status", {"repo_path": "."}))
    assert "On branch main" in status
    assert "new.txt" in status
    assert job.gateway.intents == []
    known = {each.tool for each in job.specs.known.values()}
    assert {"git_status", "git_commit"} <= known


async def test_fetch_reaches_no_network_unless_the_agent_gives_it_one(
    folder: Path, nursery: trio.Nursery
) -> None:
    web = await open_server(nursery)
    arguments = ("--ignore-robots-txt", "--allow-private-ips")
    use = ("web__fetch", {"url": web.url()})
    alone = AgentJob(folder, {"web": python_server("mcp_server_fetch", *arguments)})
    (refused,) = await answers(alone, use)
    assert "Failed to fetch" in refused
    assert web.connections == 0
    terms = python_server("mcp_server_fetch", *arguments, network=True)
    (fetched,) = await answers(AgentJob(folder, {"web": terms}), use)
    assert "ok" in fetched
    assert len(web.asked) == 1


async def test_filesystem_writes_in_the_workspace_and_nowhere_else(folder: Path) -> None:
    terms = js_server("server-filesystem", ".", folder="write")
    job = AgentJob(folder, {"files": terms})
    workspace = files_of(job)
    written, refused = await answers(
        job,
        ("files__write_file", {"path": f"{workspace}/a.txt", "content": "hello"}),
        ("files__write_file", {"path": "/etc/a.txt", "content": "hello"}),
    )
    assert "Successfully wrote" in written
    assert (workspace / "a.txt").read_text() == "hello"
    assert "outside allowed directories" in refused
    assert [each.tool for each in job.gateway.intents] == ["files.write_file"] * 2
    assert job.record.outcomes == [None, None]


async def test_memory_keeps_what_the_model_gives_it(folder: Path) -> None:
    environment = {"MEMORY_FILE_PATH": "{workspace}/memory.json"}
    job = AgentJob(folder, {"memory": js_server("server-memory", env=environment, trusted=True)})
    ana = {"name": "ana", "entityType": "person", "observations": ["likes tea"]}
    _, found = await answers(
        job,
        ("memory__create_entities", {"entities": [ana]}),
        ("memory__search_nodes", {"query": "tea"}),
    )
    assert "likes tea" in found


@pytest.mark.parametrize(
    "tool, given, text",
    [
        ("echo", {"message": "hello"}, "Echo: hello"),
        ("get-sum", {"a": 2, "b": 3}, "5"),
        ("get-tiny-image", {}, "PNG, 4 kB]"),
        ("get-structured-content", {"location": "New York"}, '"temperature"'),
    ],
)
async def test_everything_answers_in_each_form(
    folder: Path, tool: str, given: dict[str, Any], text: str
) -> None:
    terms = js_server("server-everything", "stdio", read_only=["*"])
    (answer,) = await answers(AgentJob(folder, {"all": terms}), (f"all__{tool}", given))
    assert text in str(answer)
