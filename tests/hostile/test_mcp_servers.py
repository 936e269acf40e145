"""Programs that serve tools to agents: what they see and get, and who shares them."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
import trio

from cortex.agent.mcp import session as session_module
from cortex.agent.mcp import sessions as sessions_module
from cortex.agent.mcp.sessions import Sessions, Wanted
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import SecretReference, Secrets
from cortex.domain.errors import CortexError, RejectedError, TimedOutError, UnavailableError
from tests.mcp.conftest import AgentJob, listed, scripted
from tests.support.agent_turns import Script, calls, says
from tests.support.records.factories import ClosedBreakers
from tests.support.records.rows import new_id
from tests.support.servers.web_server import open_server

VALUE = "s3cret-t0ken-of-notes"
SECRETS = Secrets(references={"TOKEN": SecretReference(env="NOTES_TOKEN")}, agent="clerk")


@pytest.fixture
def workspaces(tmp_path: Path) -> Path:
    """The folder of workspaces, which other users may pass."""
    for each in (tmp_path, *tmp_path.parents[:3]):
        if each.stat().st_uid == 0 and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    made = tmp_path / "data" / "workspaces"
    made.mkdir(parents=True)
    (made.parent / "database").write_text("of the pod")
    (made / "other").mkdir()
    (made / "other" / "file").write_text("of another job")
    return made


@pytest.fixture
async def sessions(workspaces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sessions]:
    monkeypatch.setenv("NOTES_TOKEN", VALUE)
    monkeypatch.setenv("POD_ONLY", "of the pod")
    kept = Sessions()
    kept.confiner = attrs.evolve(kept.confiner, hidden=(workspaces.parent,))
    yield kept
    await kept.close()


def of(workspaces: Path, terms: McpServer, job: str = "job", **fields: Any) -> Wanted:
    workspace = workspaces / job
    workspace.mkdir(exist_ok=True)
    given = {"tenant": "t", "secrets": SECRETS, "workspace": workspace, "folder": workspace}
    return Wanted(name="notes", terms=terms, **{**given, **fields})


async def text_of(sessions: Sessions, wanted: Wanted, tool: str, text: str = "") -> str:
    async with sessions.lend(wanted) as session:
        result, _ = await session.call(tool, {"text": text})
    return str(result.content[0].text)


async def test_server_gets_its_own_variables_and_no_other_of_the_pod(
    sessions: Sessions, workspaces: Path
) -> None:
    terms = scripted("environment", env={"NOTES": "{secret:TOKEN}", "PLAIN": "x"})
    got = json.loads(await text_of(sessions, of(workspaces, terms), "environment"))
    assert (got["NOTES"], got["PLAIN"]) == (VALUE, "x")
    assert not {"POD_ONLY", "NOTES_TOKEN", "ANTHROPIC_API_KEY", "CORTEX_DSN"} & got.keys()


async def test_secret_of_a_server_stands_in_no_arguments(
    sessions: Sessions, workspaces: Path
) -> None:
    terms = scripted("echo", env={"NOTES": "{secret:TOKEN}"})
    async with sessions.lend(of(workspaces, terms)):
        running = [
            " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])
        ]
    assert any("mcp_server.py" in each for each in running)
    assert not any(VALUE in each for each in running)


@pytest.mark.parametrize("folder", ["none", "read", "write"])
async def test_server_sees_neither_the_pods_data_nor_other_jobs(
    sessions: Sessions, workspaces: Path, folder: Any
) -> None:
    wanted = of(workspaces, scripted("look", folder=folder))
    for path in (workspaces / "other" / "file", workspaces.parent / "database", sys.prefix):
        assert (await text_of(sessions, wanted, "look", str(path))).startswith("error"), path


async def test_server_reaches_no_network_that_its_agent_did_not_give_it(
    sessions: Sessions, workspaces: Path, nursery: trio.Nursery
) -> None:
    web = await open_server(nursery)
    wanted = of(workspaces, scripted("connect"))
    assert (await text_of(sessions, wanted, "connect", str(web.port))).startswith("error")
    assert web.connections == 0


async def test_session_is_shared_by_jobs_of_one_tenant_and_the_same_secrets_only(
    sessions: Sessions, workspaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = scripted("echo", env={"NOTES": "{secret:TOKEN}"})
    own = of(workspaces, terms)
    elsewhere = Secrets(references={"TOKEN": SecretReference(env="OTHER_TOKEN")}, agent="other")
    monkeypatch.setenv("OTHER_TOKEN", VALUE)
    others = [
        of(workspaces, terms, tenant="u"),
        of(workspaces, terms, secrets=elsewhere),
        of(workspaces, scripted("echo", env={"NOTES": "x"})),
    ]
    async with sessions.lend(own) as first, sessions.lend(of(workspaces, terms, "job2")) as second:
        assert first is second
        for each in others:
            async with sessions.lend(each) as other:
                assert other is not first
        monkeypatch.setenv("NOTES_TOKEN", "a new value of the secret")
        async with sessions.lend(own) as renewed:
            assert renewed is not first


async def test_server_in_a_jobs_folder_is_that_jobs_alone(
    sessions: Sessions, workspaces: Path
) -> None:
    terms = scripted("look", folder="write")
    async with (
        sessions.lend(of(workspaces, terms, "job")) as first,
        sessions.lend(of(workspaces, terms, "job2")) as second,
    ):
        assert first is not second


async def test_number_of_servers_is_bounded(
    sessions: Sessions, workspaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "SESSIONS_MAX", 1)
    monkeypatch.setattr(sessions_module, "WAIT_S", 0.1)
    one, two = (of(workspaces, scripted("echo"), tenant=each) for each in "tu")
    async with sessions.lend(one) as first:
        with pytest.raises(UnavailableError, match="this pod uses 1 others"):
            async with sessions.lend(two):
                raise AssertionError("there was no room")
    async with sessions.lend(two):
        assert first.end.is_set()  # it was idle, and made room


async def test_missing_secret_is_named_and_nothing_starts(
    sessions: Sessions, workspaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTES_TOKEN")
    terms = scripted("echo", env={"NOTES": "{secret:TOKEN}"})
    with pytest.raises(RejectedError, match="TOKEN"):
        await text_of(sessions, of(workspaces, terms), "echo")


async def test_last_words_of_a_server_are_one_line_without_its_secret(
    sessions: Sessions, workspaces: Path
) -> None:
    terms = scripted("echo", start="blab", env={"NOTES": "{secret:TOKEN}"})
    with pytest.raises(CortexError) as caught:
        await text_of(sessions, of(workspaces, terms), "echo")
    assert "\n" not in caught.value.message
    assert "my token is" in caught.value.message
    assert VALUE not in caught.value.message


# --- what it says besides its answers


async def test_answers_to_nothing_and_requests_of_a_server_change_no_call(
    sessions: Sessions, workspaces: Path
) -> None:
    wanted = of(workspaces, scripted("odd", "echo"))
    refused = "[-32600, -32600]"
    assert await text_of(sessions, wanted, "odd", "a") == f"a {refused}"
    assert await text_of(sessions, wanted, "echo", "b") == "b"


async def test_server_that_lists_its_tools_no_more_is_left(
    sessions: Sessions, workspaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LIST_S", 0.1)
    async with sessions.lend(of(workspaces, scripted("change_and_hang"))) as session:
        await session.call("change_and_hang", {})
        with pytest.raises(TimedOutError, match=r"did not list its tools within 0\.1 seconds"):
            await session.list_anew()
        assert session.has_ended


async def test_descriptions_of_tools_are_bounded_in_memory(
    sessions: Sessions, workspaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LISTED_BYTES_MAX", 5_000)
    tools = [[f"t{number}", {"like": "echo", "title": "x" * 2_000}] for number in range(3)]
    with pytest.raises(RejectedError, match="describes its tools with over"):
        await text_of(sessions, of(workspaces, scripted(*tools, page=1)), "t0")


async def test_process_that_a_server_leaves_behind_ends_with_it(
    sessions: Sessions, workspaces: Path
) -> None:
    mark = new_id().hex
    assert await text_of(sessions, of(workspaces, scripted("fork")), "fork", mark) == "forked"
    assert left_behind(mark)
    await sessions.close()
    assert not left_behind(mark)


def left_behind(mark: str) -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if mark in (each.info["cmdline"] or ())]


# --- servers of one name


async def test_server_of_one_agent_does_not_stop_that_of_another_with_its_name(
    workspaces: Path,
) -> None:
    breakers = ClosedBreakers()
    for agent in ("ana", "bo"):
        servers = {"notes": scripted("echo", read_only=["*"])}
        job = AgentJob(workspaces, servers, {"name": agent}, lent={"breakers": breakers})
        await job.run(Script([calls(("notes__echo", {"text": "a"})), says("done")]))
        await job.toolbox.close()
    of_servers = [each for each in breakers.admissions if each.startswith("mcp:")]
    assert of_servers == ["mcp:ana/notes", "mcp:bo/notes"]


@pytest.mark.parametrize("name", ["create_lssue", "create_Issue", "create_1ssue"])
async def test_tool_that_looks_like_another_is_refused_unless_one_is_left_out(
    sessions: Sessions, workspaces: Path, name: str
) -> None:
    tools = (["create_issue", {"like": "create"}], [name, {"like": "create"}])
    with pytest.raises(RejectedError, match="which look alike"):
        await listed(sessions, of(workspaces, scripted(*tools)))
    terms = scripted(*tools, tools=["create_issue"])
    assert [each.name for each in await listed(sessions, of(workspaces, terms))] == ["create_issue"]
