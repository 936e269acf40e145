"""A command whose pod died: it runs again, the model is informed, or a person is asked."""

from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import orjson
import pytest

from cortex.agent.confinement.terms import INTERRUPTED, CommandTerms
from cortex.agent.loop import run_agent
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import UsageError
from tests.support.agent_turns import Script, calls, says
from tests.support.records.factories import LedgerDesk, a_claim, a_context
from tests.support.records.rows import new_id

YAML = "name: a\nmodel: m\nsystem: s\ntools: [run_command]\n"


@attrs.frozen
class Stored:
    """The specification that the job was submitted with."""

    spec_json: dict[str, Any]

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:  # noqa: ARG002
        return self.spec_json


async def after_a_kill(
    folder: Path, terms: CommandTerms, *, verdict: str | None = "recheck"
) -> tuple[list[str], LedgerDesk]:
    """Run an attempt that finds the intent of a killed one; return the results for the model."""
    spec = AgentSpec(name="a", model="m", system="s", tools=("run_command",), commands=terms)
    gateway = LedgerDesk(verdicts=[verdict] if verdict else [])
    script = Script([calls(("run_command", {"argv": ["touch", "ran"]})), says("done")])
    ctx = a_context(
        None,
        a_claim(agent_id=new_id(), agent_version=1),
        models=script,
        tools=Toolbox({"run_command": run_command}),
        gateway=gateway,
        specs=Stored(orjson.loads(orjson.dumps(spec.to_json()))),
        workspaces=folder,
    )
    await run_agent(ctx, spec, prompt="do it", folder=None)
    return script.last_results, gateway


def has_run(folder: Path) -> bool:
    return any(folder.rglob("ran"))


async def test_model_learns_that_the_command_may_have_run(tmp_path: Path) -> None:
    (output,), gateway = await after_a_kill(tmp_path, CommandTerms())
    assert (orjson.loads(output)["stderr"], orjson.loads(output)["exit_code"]) == (
        INTERRUPTED,
        None,
    )
    assert not has_run(tmp_path)
    assert [intent.tool for intent in gateway.intents] == ["run_command"]


async def test_interrupted_command_can_be_left_to_a_person(tmp_path: Path) -> None:
    with pytest.raises(Suspended) as raised:
        await after_a_kill(tmp_path, CommandTerms(interrupted="ask"))
    assert raised.value.waiting_on.startswith("effect:")
    assert not has_run(tmp_path)


@pytest.mark.parametrize(
    "terms", [CommandTerms(interrupted="rerun"), CommandTerms(read_only=["ls", "touch ran"])]
)
async def test_repeatable_command_runs_again_without_an_intent(
    tmp_path: Path, terms: CommandTerms
) -> None:
    (output,), gateway = await after_a_kill(tmp_path, terms)
    assert orjson.loads(output)["exit_code"] == 0
    assert has_run(tmp_path)
    assert gateway.intents == []


async def test_the_first_time_it_runs_under_its_intent(tmp_path: Path) -> None:
    (output,), gateway = await after_a_kill(tmp_path, CommandTerms(), verdict=None)
    assert orjson.loads(output)["exit_code"] == 0
    assert has_run(tmp_path)
    assert len(gateway.intents) == 1


def test_terms_are_read_from_yaml_and_stored_only_where_set() -> None:
    (plain,) = parse_agents(YAML, "f")
    assert "commands" not in plain.to_json()
    text = "commands: {network: true, interrupted: ask, read_only: [git status]}\n"
    (agent,) = parse_agents(YAML + text, "f")
    terms = CommandTerms(network=True, interrupted="ask", read_only=["git status"])
    assert agent.commands == terms
    assert AgentSpec.from_json(agent.to_json()) == agent
    assert CommandTerms.of(agent.to_json()) == terms


@pytest.mark.parametrize(
    "text, output",
    [
        ("interrupted: maybe", "commands.interrupted"),
        ("network: 3", "commands.network"),
        ("read_only: ['']", "commands.read_only"),
        ("nowhere: 1", "commands.nowhere"),
    ],
)
def test_terms_that_do_not_fit_are_refused_with_their_line(text: str, output: str) -> None:
    with pytest.raises(UsageError, match=f"f:6: {output}"):
        parse_agents(f"{YAML}commands:\n  {text}\n", "f")
