"""The demo's own job types and agents: only a demo's pod knows them, so only a demo runs them."""

from pathlib import Path
from typing import Final

import trio

from cortex.agent import loop
from cortex.agent.confinement.terms import CommandTerms
from cortex.agent.spec import AgentSpec
from cortex.demo.mail import SEND_MAIL
from cortex.domain.approvals.rules import ApprovalRule
from cortex.domain.errors import UsageError
from cortex.durable.context import Context
from cortex.durable.registry import job

SCRIPTED: Final = "demo"
LIVE: Final = "demo_live"
"""Two job types, each with agents of its own, so that no pod calls the wrong model."""
REPORT: Final = "report.md"
SCRIPTED_MODEL: Final = "scripted"
PROMPT: Final = (
    "Inspect this folder and write a report about it to report.md: what it is, how it is laid "
    "out, its largest files with their line counts, and what changed lately. Name real files and "
    "real figures only."
)
MAIL_PROMPT: Final = " Then mail it to team@example.org."
SYSTEM: Final = (
    "You are a careful engineer who inspects a folder. Look before you write: list the files, "
    "read the important ones, run read-only commands such as git log and wc. Then write one "
    "Markdown report with write_file and end with two or three sentences about what you found."
)
TOOLS: Final = ("list_files", "read_file", "run_command", "write_file")
EXPIRES_S: Final = 3_600
ASKS: Final = ApprovalRule(
    tool=SEND_MAIL,
    approve=True,
    expires_seconds=EXPIRES_S,
    on_deny="fail",
    on_expiry="fail",
    reason="a person reads each mail before it goes out",
)


def agent_name(job_type: str, *, asks: bool) -> str:
    """Return the name of a job type's agent; with `asks` it mails its report after approval."""
    return f"{job_type}_approve" if asks else job_type


def demo_agent(job_type: str, model: str, *, asks: bool = False) -> AgentSpec:
    """Return the agent that inspects a folder, on a model."""
    description = "Inspects a folder and writes a report about it"
    return AgentSpec(
        name=agent_name(job_type, asks=asks),
        model=model,
        system=SYSTEM,
        tools=(*TOOLS, SEND_MAIL) if asks else TOOLS,
        max_steps=30,
        max_tokens=8_192,
        description=f"{description}, which it mails." if asks else f"{description}.",
        approvals=(ASKS,) if asks else (),
        commands=CommandTerms(interrupted="rerun"),  # its prompt asks only for read-only commands
    )


async def _inspect(ctx: Context, folder: str, model: str) -> loop.AgentResult:
    """Run the inspecting agent on a folder; `model` makes the job's request identifiable."""
    stored = await ctx.agent_spec()
    if stored is None:
        raise UsageError(f"a demo job for {model!r} needs its agent")
    if not await trio.Path(folder).is_dir():
        raise UsageError(f"folder {folder!r} no longer exists")
    spec = AgentSpec.from_json(stored)
    prompt = PROMPT + MAIL_PROMPT if SEND_MAIL in spec.tools else PROMPT
    return await loop.run_agent(ctx, spec, prompt=prompt, folder=Path(folder))


DEMO_JOBS: Final = {name: job(name, timeout=1800)(_inspect) for name in (SCRIPTED, LIVE)}
