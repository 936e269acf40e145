"""The demo's own job type and agent: only a demo's pod knows them, so only a demo runs them."""

from pathlib import Path
from typing import Final

import trio

from cortex.agent import loop
from cortex.agent.spec import AgentSpec
from cortex.domain.errors import UsageError
from cortex.durable.context import Context
from cortex.durable.registry import job

SCRIPTED: Final = "demo"
LIVE: Final = "demo_live"
"""Two job types, each with an agent of that name: no pod asks the wrong model."""
REPORT: Final = "report.md"
SCRIPTED_MODEL: Final = "scripted"
PROMPT: Final = (
    "Inspect this folder and write a report about it to report.md: what it is, how it is laid "
    "out, its largest files with their line counts, and what changed lately. Name real files and "
    "real figures only."
)
SYSTEM: Final = (
    "You are a careful engineer who inspects a folder. Look before you write: list the files, "
    "read the important ones, run read-only commands such as git log and wc. Then write one "
    "Markdown report with write_file and end with two or three sentences about what you found."
)


def demo_agent(name: str, model: str) -> AgentSpec:
    """Return the agent that inspects a folder, on a model."""
    return AgentSpec(
        name=name,
        model=model,
        system=SYSTEM,
        tools=("list_files", "read_file", "run_command", "write_file"),
        max_steps=30,
        max_tokens=8_192,
        description="Inspects a folder and writes a report about it.",
    )


async def _inspect(ctx: Context, folder: str, model: str) -> loop.AgentResult:
    """Run the inspecting agent on a folder; `model` is there to find the same job again."""
    stored = await ctx.agent_spec()
    if stored is None:
        raise UsageError(f"a demo job for {model!r} needs its agent")
    if not await trio.Path(folder).is_dir():
        raise UsageError(f"folder {folder!r} is not there any more")
    spec = AgentSpec.from_json(stored)
    return await loop.run_agent(ctx, spec, prompt=PROMPT, folder=Path(folder))


DEMO_JOBS: Final = {name: job(name, timeout=1800)(_inspect) for name in (SCRIPTED, LIVE)}
