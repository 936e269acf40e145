"""An application whose every word is hostile: names, steps, results, errors, questions."""

import os
from typing import Any

import trio

from cortex.agent.tools.tool import tool
from cortex.domain.errors import RejectedError, TransientError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job
from tests.support.hostile import HOSTILE, LINES

SAID = {HOSTILE: [LINES, {HOSTILE: LINES}]}


@job("speaks")
async def speaks(ctx: Context, word: str = "") -> Any:
    """Say it as a step, then as a result."""
    ctx.log(LINES, **{HOSTILE: LINES})
    await ctx.step(f"step {HOSTILE}", _say, word)
    return SAID


@job("fails", retry=Retry(max=0, worker_attempts=1))
async def fails(ctx: Context, how: str) -> Any:
    """Fail with it after a step."""
    await ctx.step(f"step {HOSTILE}", _say, how)
    if how == "rejected":
        raise RejectedError(LINES, hint=LINES)
    raise RuntimeError(LINES)


@job("flaky")
async def flaky(ctx: Context) -> Any:
    """Wait for a retry for ever."""
    ctx.patched(f"patch {HOSTILE}")
    await ctx.step(f"step {HOSTILE}", _say, "")
    raise TransientError(LINES, retry_after_s=3600)


@job("asks")
async def asks(ctx: Context) -> Any:
    """Ask people for it."""
    return await ctx.approve(
        f"question {HOSTILE}", detail=SAID, effect=LINES, reason=LINES, risk="LOW"
    )


@job("doubts")
async def doubts(ctx: Context) -> Any:
    """Do something with an unknown outcome."""
    return await ctx.effect(f"effect {HOSTILE}", _vanish, SAID)


@job("hangs")
async def hangs(ctx: Context) -> Any:
    """Let a step time out."""
    await ctx.step(f"step {HOSTILE}", trio.sleep_forever, timeout=0.5)


@tool
def speak(word: str) -> Any:
    """Return it."""
    return {HOSTILE: [LINES, word]}


@tool(local=True)
def break_down(word: str) -> str:
    """Raise it."""
    raise RuntimeError(LINES + word)


@tool(breaker=lambda _: f"tool:far {HOSTILE}")
def reach_out(word: str) -> str:
    """Fail as something far away does."""
    raise ConnectionResetError(LINES + word)


async def _say(_: str) -> Any:
    return SAID


async def _vanish(_: Any) -> None:
    raise ConnectionResetError(f"{LINES} {os.getpid()}")
