"""Servers that behave badly: each time one line with the server and the way out, and no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from cortex.agent.mcp import session as session_module
from cortex.agent.mcp.session import Session
from cortex.agent.mcp.sessions import Sessions, Wanted
from cortex.agent.mcp.terms import McpServer
from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import CortexError, RejectedError, TimedOutError, UnavailableError
from tests.mcp.conftest import PYTHON, AgentJob, listed, scripted, wanted
from tests.support.agent_turns import Script, calls, says


async def refused(sessions: Sessions, of: Wanted) -> CortexError:
    with pytest.raises(CortexError) as caught:
        await listed(sessions, of)
    assert "\n" not in caught.value.message
    assert "MCP server 'notes'" in caught.value.message
    return caught.value


# --- at the start


async def test_server_that_exits_is_named_with_its_last_words(
    folder: Path, sessions: Sessions
) -> None:
    error = await refused(sessions, wanted(folder, scripted(start="exit")))
    assert error.message == "MCP server 'notes' exited with 1: no token: set GITHUB_TOKEN"
    assert isinstance(error, UnavailableError)


async def test_program_that_does_not_exist_is_named(folder: Path, sessions: Sessions) -> None:
    error = await refused(sessions, wanted(folder, McpServer(command=["no-such-server"])))
    assert error.message == (
        "MCP server 'notes': 'no-such-server' cannot be started: No such file or directory"
    )
    assert "reads" in str(error.hint)


async def test_program_outside_the_shown_folders_is_named(folder: Path, sessions: Sessions) -> None:
    program = folder / "hidden-server"
    program.write_text("#!/usr/bin/env sh\n")
    program.chmod(0o755)
    error = await refused(sessions, wanted(folder, McpServer(command=[str(program)])))
    assert error.message == (
        f"MCP server 'notes': '{program}' cannot be started: No such file or directory; it does "
        f"not see {program}: name a folder under reads"
    )


async def test_folder_that_holds_the_pods_data_is_not_shown(
    folder: Path, sessions: Sessions
) -> None:
    sessions.confiner = attrs.evolve(sessions.confiner, hidden=(folder,))
    terms = McpServer(command=[PYTHON], reads=[str(folder.parent)])
    error = await refused(sessions, wanted(folder, terms))
    assert f"{folder} must not be seen" in error.message


async def test_server_that_hangs_at_its_start_is_left(
    folder: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "START_S", 0.2)
    error = await refused(sessions, wanted(folder, scripted(start="hang")))
    assert error.message == "MCP server 'notes' was not ready within 0.2 seconds"
    assert isinstance(error, TimedOutError)


@pytest.mark.parametrize(
    "start, reason",
    [
        ("garbage", "sent over 100 lines that are no messages"),
        ("flood", "sent 5,000 messages within 10 seconds"),
    ],
)
async def test_server_that_talks_nonsense_is_left(
    folder: Path, sessions: Sessions, start: str, reason: str
) -> None:
    error = await refused(sessions, wanted(folder, scripted(start=start)))
    assert error.message == f"MCP server 'notes' {reason}"


@pytest.mark.parametrize("start", ["greeting", "stderr", "huge"])
async def test_server_that_talks_too_much_but_serves_is_used(
    folder: Path, sessions: Sessions, start: str
) -> None:
    (found,) = await listed(sessions, wanted(folder, scripted("echo", start=start)))
    assert found.name == "echo"


async def test_server_that_fails_again_rests_before_it_begins_again(
    folder: Path, sessions: Sessions
) -> None:
    of = wanted(folder, scripted(start="exit"))
    for _ in range(2):
        await refused(sessions, of)
    error = await refused(sessions, of)
    assert "it may begin again in 2 seconds" in error.message


# --- what it says about its tools


@pytest.mark.parametrize(
    "tool, reason",
    [
        (["bad name!", {"like": "echo"}], "tool 'bad name!' has no usable name"),
        (["echo", {"inputSchema": {"type": "string"}}], "does not speak the protocol"),
        (["echo", {"inputSchema": {}}], "does not speak the protocol"),
        (["echo", {"description": "x" * 70_000}], "is described with 70"),
        (["echo", {"description": 5}], "does not speak the protocol"),
    ],
)
async def test_tool_that_no_model_can_be_offered_is_named(
    folder: Path, sessions: Sessions, tool: Any, reason: str
) -> None:
    error = await refused(sessions, wanted(folder, scripted(tool)))
    assert reason in error.message


async def test_bad_tool_that_the_agent_does_not_name_is_left_out(
    folder: Path, sessions: Sessions
) -> None:
    terms = scripted("echo", ["bad name!", {"like": "echo"}], tools=["echo"])
    assert [each.name for each in await listed(sessions, wanted(folder, terms))] == ["echo"]


async def test_tool_that_the_server_lacks_is_named(folder: Path, sessions: Sessions) -> None:
    error = await refused(sessions, wanted(folder, scripted("echo", tools=["ecko"])))
    assert error.message == "MCP server 'notes' has no tool 'ecko'; it has echo"


async def test_too_many_tools_are_refused(folder: Path, sessions: Sessions) -> None:
    many = [[f"t{number}", {"like": "echo"}] for number in range(300)]
    error = await refused(sessions, wanted(folder, scripted(*many, page=50)))
    assert error.message == "MCP server 'notes' offers 300 tools, at most 256"
    terms = scripted(*many, page=50, tools=["t7?"])
    assert len(await listed(sessions, wanted(folder, terms))) == 10


async def test_name_that_the_agents_own_tool_has_is_refused(folder: Path) -> None:
    @tool(name="notes__echo", local=True)
    async def own() -> str:
        """Be there first."""
        return "own"

    job = AgentJob(folder, {"notes": scripted("echo")}, {"tools": ("notes__echo",)})
    job.toolbox = Toolbox({"notes__echo": own})
    with pytest.raises(RejectedError) as caught:
        await job.run(Script([says("done")]))
    assert caught.value.message == (
        "MCP server 'notes': tool 'echo' is 'notes__echo' to models, and so is the agent's tool "
        "'notes__echo'"
    )


# --- in a call


async def answered(folder: Path, tool: str, *others: Any, **terms: Any) -> tuple[AgentJob, str]:
    job = AgentJob(folder, {"notes": scripted(tool, *others, folder="write", **terms)})
    script = Script([calls((f"notes__{tool}", {"text": "a"})), says("done")])
    await job.run(script)
    return job, script.last_results[0]


@pytest.mark.parametrize(
    "tool, text",
    [
        ("huge", "tool 'notes.huge' answered with more than 8 MiB; its result is lost"),
        ("lie", "tool 'notes.lie': sum does not fit: 'x' is not of type 'integer'"),
        ("die", "tool 'notes.die': MCP server 'notes' exited with 3"),
        ("flood", "tool 'notes.flood': MCP server 'notes' sent 5,000 messages within 10 seconds"),
        ("unknown", "tool 'notes.unknown': its server failed: database is locked"),
        ("refuse", "tool 'notes.refuse' was refused by its server: no such project"),
        ("fail", "tool 'notes.fail' failed: 404 no such repository"),
    ],
)
async def test_failure_of_a_call_that_reads_goes_to_the_model(
    folder: Path, tool: str, text: str
) -> None:
    _, result = await answered(folder, tool, read_only=["*"])
    assert text in result


async def test_schema_that_is_none_is_named(folder: Path) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "no such type"}}}
    job = AgentJob(folder, {"notes": scripted(["echo", {"inputSchema": bad}])})
    script = Script([calls(("notes__echo", {"a": 1})), says("done")])
    await job.run(script)
    assert "the input schema of notes.echo is not a usable JSON Schema" in script.last_results[0]


async def test_regular_expression_of_a_schema_does_not_stop_the_pod(folder: Path) -> None:
    schema = {"type": "object", "properties": {"text": {"pattern": "^(a+)+$"}}}
    job = AgentJob(folder, {"notes": scripted(["echo", {"inputSchema": schema}])})
    script = Script([calls(("notes__echo", {"text": "a" * 40 + "b"})), says("done")])
    await job.run(script)
    assert script.last_results[0] == "a" * 40 + "b"


async def test_large_result_becomes_a_file_of_the_workspace(folder: Path) -> None:
    job, result = await answered(folder, "large", read_only=["*"])
    assert "tool-output/1-notes.large-" in result
    assert [file.stat().st_size for file in job.files("tool-output/*")] == [2_000_000]


async def test_picture_is_named_in_its_place(folder: Path) -> None:
    assert (await answered(folder, "picture"))[1] == "[image left out: image/png, 5 bytes]"


async def test_call_that_takes_too_long_is_cancelled_at_the_server(folder: Path) -> None:
    job, result = await answered(folder, "slow", read_only=["*"], timeout=0.2)
    assert "tool 'notes.slow' timed out after 0.2 seconds" in result
    with trio.fail_after(5):
        while not job.files("marks"):  # noqa: ASYNC110 -- another program writes it
            await trio.lowlevel.checkpoint()
    assert job.marks == ["cancelled caller cancelled"]


# --- in a call with an effect


async def test_server_that_dies_in_an_effect_leaves_its_outcome_to_people(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("create_and_die", folder="write")})
    with pytest.raises(Suspended) as caught:
        await job.run(Script([calls(("notes__create_and_die", {"text": "a"}))]))
    (unknown,) = caught.value.unknown
    assert "'notes.create_and_die': MCP server 'notes' exited with 3: out of luck" in unknown.why
    assert job.marks == ["a"]


@pytest.mark.parametrize(
    "hangs, why", [(False, "this pod uses 16 others"), (True, "was not ready within 0.2 s")]
)
async def test_effect_without_a_server_to_call_was_not_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool, why: str
) -> None:
    lend, lent = Sessions.lend, []

    @asynccontextmanager
    async def gone(sessions: Sessions, of: Wanted) -> AsyncIterator[Session]:
        lent.append(of)
        if len(lent) == 3:  # it was there for the list of tools, and when the call was planned
            if hangs:
                await trio.sleep_forever()
            raise UnavailableError("MCP server 'notes' must wait: this pod uses 16 others")
        async with lend(sessions, of) as session:
            yield session

    monkeypatch.setattr(Sessions, "lend", gone)
    job, result = await answered(folder, "create", timeout=0.2)
    assert "tool 'notes.create' was not called: " in result
    assert why in result
    (reason,) = job.record.outcomes
    assert str(reason).startswith("NotSentError: ")
    assert job.files("marks") == []


async def test_effect_with_an_answer_that_is_too_long_counts_as_applied(folder: Path) -> None:
    job, result = await answered(folder, "create_huge")
    assert "answered with more than 8 MiB; its result is lost" in result
    assert job.marks == ["huge"]
    assert job.record.outcomes == [None]


async def test_effect_whose_server_refuses_its_own_result_counts_as_applied(folder: Path) -> None:
    job, result = await answered(folder, "create_unfit")
    assert "tool 'notes.create_unfit' ran, and its server took its result for unfit" in result
    assert job.marks == ["a"]
    assert job.record.outcomes == [None]


async def test_effect_that_the_server_refused_was_not_applied(folder: Path) -> None:
    job, result = await answered(folder, "refuse")
    assert "was refused by its server" in result
    (reason,) = job.record.outcomes
    assert "was refused by its server" in str(reason)


async def test_idempotent_effect_of_a_trusted_server_is_made_again(folder: Path) -> None:
    job, result = await answered(folder, "put", trusted=True)
    (intent,) = job.gateway.intents
    assert intent.is_idempotent
    assert result == "created a"


async def test_missing_library_is_one_line(
    folder: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(name: str) -> None:
        raise ModuleNotFoundError(name, name="mcp")

    monkeypatch.setattr("importlib.import_module", lack)
    with pytest.raises(CortexError) as caught:
        await listed(sessions, wanted(folder, scripted("echo")))
    assert caught.value.message == "MCP servers need a package that is not installed: mcp"
    assert caught.value.hint == "pip install 'cortex-durable[mcp]'"
