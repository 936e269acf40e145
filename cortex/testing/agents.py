"""Agents in tests: read from their files, run by the job type `run_agent`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from cortex.agent.loop import AgentResult
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.tool import AnyTool
from cortex.domain.canonical import canonical, parse
from cortex.domain.clock import uuid7_of
from cortex.domain.errors import UsageError
from cortex.jobs.run_agent import run_agent

AGENT_ID: Final = uuid7_of(0, 1)
VERSION: Final = 1


@attrs.frozen
class Agent:
    """An agent as a job: run it with a `prompt`."""

    spec: AgentSpec
    tools: tuple[AnyTool, ...]
    """The application's own tools."""

    @property
    def stored(self) -> dict[str, Any]:
        """The specification as a database returns it."""
        stored: dict[str, Any] = parse(canonical(self.spec.to_json()))
        return stored

    @property
    def name(self) -> str:
        return run_agent.name

    async def __call__(self, *_args: Any, **_kwargs: Any) -> AgentResult:
        raise UsageError(
            f"agent {self.spec.name!r} cannot be called",
            hint='run it: await cortex.run(agent, prompt="…")',
        )


def agent(file: str | Path, name: str | None = None, *, tools: Sequence[AnyTool] = ()) -> Agent:
    """Return the agent of a YAML file, to be run like a job: `cortex.run(agent, prompt="…")`.

    `name` chooses one of several. `tools` are those of the application that it may use; it has the
    built-in ones that it names. Raises `UsageError` for a file that `cortex agents apply` refuses.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(file)!r}: {error.strerror}") from None
    found = {spec.name: spec for spec in parse_agents(text, str(file))}
    if name is None and len(found) == 1:
        (name,) = found
    if name not in found:
        which = "has several agents" if name is None else f"has no agent {name!r}"
        raise UsageError(f"{str(file)!r} {which}", hint=f"name one of {', '.join(sorted(found))}")
    return Agent(found[name], tuple(tools))
