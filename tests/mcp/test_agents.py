"""Agents that call tools of MCP servers: names, records, approvals, effects."""

from pathlib import Path

import pytest

from cortex.agent.mcp.names import model_name
from cortex.domain.approvals.rules import ApprovalRule
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError
from tests.mcp.conftest import AgentJob, scripted
from tests.support.agent_turns import Script, calls, says


async def test_model_calls_a_tool_of_a_server_by_its_name_without_a_dot(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("echo", "create")})
    script = Script([calls(("notes__echo", {"text": "hello"})), says("done")])
    await job.run(script)
    assert script.last_results == ["hello"]
    assert [each["name"] for each in script.asked[0].tools] == ["notes__create", "notes__echo"]
    assert "1 notes.echo" in job.record.keys


async def test_tool_choice_names_a_tool_of_a_server(folder: Path) -> None:
    servers = {"notes": scripted("echo", "create")}
    job = AgentJob(folder, servers, {"tool_choice": "notes.echo"})
    script = Script([calls(("notes__echo", {"text": "hello"})), says("done")])
    await job.run(script)
    assert [each.options.tool_choice for each in script.asked] == ["notes__echo", None]
    other = AgentJob(folder, servers, {"tool_choice": "notes.none"})
    with pytest.raises(RejectedError, match=r"names 'notes.none', which its server does not offer"):
        await other.run(Script([says("done")]))


async def test_replay_offers_the_same_bytes_without_the_server(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("echo", "create")})
    first = Script([calls(("notes__echo", {"text": "hello"})), RuntimeError("the pod dies")])
    with pytest.raises(RuntimeError, match="dies"):
        await job.run(first)
    job.servers = {"notes": scripted("echo", "create")}
    await job.toolbox.close()
    second = Script([says("done")])
    await job.run(second)
    assert second.asked[0].tools == first.asked[0].tools


async def test_effect_is_recorded_before_its_call_and_a_read_is_not(folder: Path) -> None:
    terms = scripted("echo", "create", folder="write", trusted=True)
    job = AgentJob(folder, {"notes": terms})
    uses = calls(("notes__echo", {"text": "a"}), ("notes__create", {"text": "b"}))
    await job.run(Script([uses, says("done")]))
    assert [each.tool for each in job.gateway.intents] == ["notes.create"]
    assert job.marks == ["b"]


async def test_hints_of_a_server_that_is_not_trusted_count_for_nothing(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("echo")})
    await job.run(Script([calls(("notes__echo", {"text": "a"})), says("done")]))
    assert [each.tool for each in job.gateway.intents] == ["notes.echo"]


async def test_specification_may_say_that_a_tool_only_reads(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("echo", read_only=["e*"])})
    await job.run(Script([calls(("notes__echo", {"text": "a"})), says("done")]))
    assert job.gateway.intents == []


async def test_rule_for_all_tools_of_a_server_asks_people_by_the_dotted_name(folder: Path) -> None:
    rules = (ApprovalRule(tool="notes.*", approve=True),)
    job = AgentJob(folder, {"notes": scripted("create", folder="write")}, {"approvals": rules})
    with pytest.raises(Suspended) as caught:
        await job.run(Script([calls(("notes__create", {"text": "b"}))]))
    (request,) = caught.value.requests
    assert request.tool == "notes.create"
    assert request.arguments == '{"text":"b"}'
    assert request.schema is not None
    assert request.schema["required"] == ["text"]


async def test_rule_about_a_tool_that_no_server_has_lets_nothing_begin(folder: Path) -> None:
    rules = (ApprovalRule(tool="notes.craete", approve=True),)
    job = AgentJob(folder, {"notes": scripted("create", "echo")}, {"approvals": rules})
    script = Script([calls(("notes__create", {"text": "b"}))])
    with pytest.raises(RejectedError) as caught:
        await job.run(script)
    assert caught.value.message == (
        "agent 'a': approvals[0] is about 'notes.craete', which MCP server 'notes' does not offer; "
        "there are notes.create, notes.echo"
    )
    assert script.asked == []


async def test_input_that_does_not_fit_goes_back_to_the_model(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("create", folder="write")})
    script = Script([calls(("notes__create", {"text": 5})), says("done")])
    await job.run(script)
    assert "'notes.create': text does not fit: 5 is not of type 'string'" in script.last_results[0]
    assert job.gateway.intents == []


async def test_two_tools_of_one_name_for_models_fail_the_job_by_name(folder: Path) -> None:
    job = AgentJob(folder, {"notes": scripted("echo", ["echo", {}])})
    with pytest.raises(RejectedError, match="'notes' offers two tools named 'echo'"):
        await job.run(Script([says("done")]))


def test_long_and_odd_names_stay_one_of_a_kind() -> None:
    long = [model_name("s", "x" * 100 + end) for end in "ab"]
    odd = [model_name("s", tool) for tool in ("a.b", "a_b", "a/b")]
    assert len({*long, *odd}) == 5
    assert max(map(len, long)) == 64
    assert odd[1] == "s__a_b"
