"""`run_agent`: runs the job's agent on a prompt, with its tools, to the end of its turn."""

from pathlib import Path

import trio

from cortex.agent import loop
from cortex.agent.secrets import Secrets
from cortex.agent.spec import AgentSpec
from cortex.domain.errors import UsageError
from cortex.durable.context import Context
from cortex.durable.registry import job


@job("run_agent")
async def run_agent(ctx: Context, prompt: str, folder: str | None = None) -> loop.AgentResult:
    """Run the agent; its tools read in `folder` and write in the job's workspace only."""
    stored = await ctx.agent_spec()
    if stored is None:
        raise UsageError("run_agent needs an agent", hint="submit it with --agent NAME")
    # Before anything is recorded: the prompt may hold what is a secret.
    await trio.to_thread.run_sync(Secrets.of(stored).make_known)
    return await loop.run_agent(
        ctx, AgentSpec.from_json(stored), prompt=prompt, folder=_readable(folder)
    )


def _readable(folder: str | None) -> Path | None:
    if folder is None:
        return None
    path = Path(folder)
    if not path.is_absolute() or not path.is_dir():
        raise UsageError(f"folder {folder!r} is not a folder on this machine, by its full path")
    return path
