"""`run_agent`: runs the job's agent on a prompt, with its tools, to the end of its turn."""

from pathlib import Path

import trio

from cortex.agent import loop
from cortex.agent.prompt_files import PromptFile, kept_files
from cortex.agent.secrets import Secrets
from cortex.agent.spec import AgentSpec
from cortex.domain.errors import UsageError
from cortex.domain.job import RUN_AGENT
from cortex.durable.context import Context
from cortex.durable.registry import job


@job(RUN_AGENT)
async def run_agent(
    ctx: Context,
    prompt: str,
    folder: str | None = None,
    within: str | None = None,
    files: list[PromptFile] | None = None,
) -> loop.AgentResult:
    """Run the agent; its tools read in `folder` and write in the job's workspace.

    `files`: images and PDF files that it sees before the prompt, by their paths in `folder`, or
    with their content in base64.

    Programs that it runs write in `folder`, too, but not in its `.git`. `within`: a folder that
    must contain `folder`; the HTTP API sets it.
    """
    stored = await ctx.agent_spec()
    if stored is None:
        raise UsageError("run_agent needs an agent", hint="submit it with --agent NAME")
    # Before anything is recorded: the prompt may contain a secret.
    await trio.to_thread.run_sync(Secrets.of(stored).register)
    place = _readable(folder, within)
    kept = await kept_files(ctx, files or (), folder=place)
    return await loop.run_agent(
        ctx, AgentSpec.from_json(stored), prompt=prompt, folder=place, files=kept
    )


def _readable(folder: str | None, within: str | None) -> Path | None:
    if folder is None:
        return None
    path = Path(folder)
    if within is not None:
        path = path.resolve()  # a link may have been changed since the submission
        if not path.is_relative_to(Path(within).resolve()):
            raise UsageError(f"folder {folder!r} leads out of {within!r}, to {str(path)!r}")
    if not path.is_absolute() or not path.is_dir():
        raise UsageError(f"folder {folder!r} is not a folder on this machine, by its full path")
    return path
