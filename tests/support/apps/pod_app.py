"""The application of test pods: jobs and tools that do what a test asks, good or bad.

What a test holds back it holds with a gate: a path, waited for until the file is there.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import trio

from cortex.agent.tools.tool import tool
from cortex.domain.backoff import Backoff
from cortex.domain.errors import TransientError
from cortex.domain.retry import CALL_RETRIES
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

GATE_POLL_S = 0.05
BACKOFF_S = float(os.environ.get("POD_APP_BACKOFF_S", "60"))
"""What one release of this application may have otherwise than the next."""
if pause_s := os.environ.get("POD_APP_CALL_PAUSE_S"):  # before a call is repeated, at least
    patient = attrs.evolve(CALL_RETRIES["default"], base_s=float(pause_s), cap_s=float(pause_s))
    CALL_RETRIES["default"] = patient


@job("noop")
async def noop(ctx: Context) -> int:
    return ctx.attempt


@job("steps")
async def steps(ctx: Context, count: int, gate: str | None = None, pause_s: float = 0.0) -> int:
    """Commit a number of steps in order, the second one when the gate is open."""
    total: int = await ctx.step("add", _one, pause_s)
    if gate is not None:
        await _open(gate)
    for _ in range(count - 1):
        total += await ctx.step("add", _one, pause_s)
    return total


@job("gated")
async def gated(ctx: Context, gate: str) -> int:
    """Wait for the gate; return the attempt that came through it."""
    await ctx.step("begun", _one)
    await _open(gate)
    return ctx.attempt


@job("misbehave", retry=Retry(worker_attempts=2))
async def misbehave(ctx: Context, how: str) -> Any:
    """Do one of the things that no handler should do."""
    return await _MISDEEDS[how](ctx)


@job("unstoppable")
async def unstoppable(ctx: Context, how: str) -> None:
    """Never end: `deaf` to cancellation, `stubborn` after it, or a `hog` of the event loop."""
    await ctx.step("begun", _one)
    while how == "stubborn":
        with contextlib.suppress(BaseException):
            await trio.sleep_forever()
    if how == "hog":
        time.sleep(3600)  # noqa: ASYNC251 -- that is the point
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


@job("cleans_up")
async def cleans_up(ctx: Context, gate: str) -> int:
    """Wait for the gate; whatever comes, do a last step that no cancellation reaches."""
    await ctx.step("begun", _one)
    try:
        await _open(gate)
    finally:
        with trio.CancelScope(shield=True):
            await ctx.step("cleaned up", _one)
    return ctx.attempt


@job("ask")
async def ask(ctx: Context, model: str, prompt: str, questions: int = 1) -> str:
    """Ask a model a number of times; return its last answer."""
    text = ""
    for _ in range(questions):
        response = await ctx.llm("ask", model=model, messages=[{"role": "user", "content": prompt}])
        text = response.text
    return text


@job("flaky", retry=Retry(max=2, worker_attempts=2, backoff=Backoff(base_s=60, cap_s=60)))
async def flaky(ctx: Context, how: str, times: int = 1) -> int:
    """Fail some attempts by `infra`, `app` or `asked`, then return the one that went well."""
    await ctx.step("begun", _one)
    print(f"flaky attempt {ctx.attempt}")  # noqa: T201 -- job code may print
    if ctx.attempt <= times:
        if how == "infra":
            raise ConnectionResetError("the line was cut")
        raise TransientError("come back later", retry_after_s=270 if how == "asked" else 50)
    return ctx.attempt


@job("slow", timeout=2)
async def slow(ctx: Context, gate: str) -> int:
    """Wait for the gate, for two seconds in all."""
    await ctx.step("begun", _one)
    await _open(gate)
    return ctx.attempt


@job("slow_step")
async def slow_step(ctx: Context, gate: str, limit_s: float) -> int:
    """Wait for the gate within a step that has a limit."""
    await ctx.step("begun", _one)
    await ctx.step("waits", _open, gate, timeout=limit_s)
    return ctx.attempt


@job("steps_at_once")
async def steps_at_once(ctx: Context, gate: str) -> int:
    """Wait for the gate in two branches: in a step, and before the next one."""

    async def slow() -> int:
        await _open(gate)
        return int(await ctx.step("nested", _one))

    async def waits_then_asks() -> int:
        await _open(gate)
        return int(await ctx.step("next", _one))

    await ctx.step("begun", _one)
    return sum(await ctx.gather(ctx.step("slow", slow), waits_then_asks()))


@job("ask_agent", retry=Retry(backoff=Backoff(base_s=BACKOFF_S, cap_s=86_400, multiplier=10)))
async def ask_agent(ctx: Context, prompt: str, fails: int = 0) -> str:
    """Ask the model of its agent, fail some attempts, ask again; return the system prompt."""
    spec = await ctx.agent_spec() or {}
    asked = {"model": spec["model"], "system": spec["system"]}
    messages = [{"role": "user", "content": prompt}]
    await ctx.llm("before", messages=messages, **asked)
    if ctx.attempt <= fails:
        raise TransientError("come back later", retry_after_s=270 if ctx.attempt == 1 else None)
    await ctx.llm("after", messages=messages, **asked)
    return str(spec["system"])


@tool
async def wait_for(gate: str) -> str:
    """Wait until the file is there."""
    await _open(gate)
    return "it is there"


@tool
def wait_in_thread(gate: str) -> str:
    """Wait until the file is there, in a thread that nothing can cancel."""
    _wait_in_thread(gate)
    return "it is there"


@tool
def break_down(why: str) -> str:
    """Raise."""
    raise RuntimeError(why)


@tool
def not_json() -> Any:
    """Return what JSON has no form for."""
    return {"when": object(), "raw": b"\xff"}


async def _one(pause_s: float = 0.0) -> int:
    await trio.sleep(pause_s)
    return 1


async def _open(gate: str) -> None:
    path = trio.Path(gate)
    while not await path.exists():  # noqa: ASYNC110 -- the test is another process
        await trio.sleep(GATE_POLL_S)


def _wait_in_thread(gate: str) -> None:
    path = Path(gate)
    while not path.exists():
        time.sleep(GATE_POLL_S)


async def _raise(ctx: Context) -> Any:
    raise RuntimeError(f"broken in attempt {ctx.attempt}\nwith a second line")


async def _raise_hostile(_: Context) -> Any:
    raise RuntimeError("nul \x00 half \ud800 escape \x1b[31m")


async def _raise_group(_: Context) -> Any:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_raise_key)
        nursery.start_soon(_raise_key)


async def _raise_key() -> None:
    raise KeyError("one of two")


async def _exit(_: Context) -> Any:
    sys.exit(3)


async def _kill(_: Context) -> Any:
    signal.raise_signal(signal.SIGKILL)


async def _nan(_: Context) -> Any:
    return {"x": float("nan")}


async def _nul(_: Context) -> Any:
    return {"x\x00": "a\x00b"}


async def _surrogate(_: Context) -> Any:
    return "half \ud800 pair"


async def _bytes(_: Context) -> Any:
    return {"x": b"\xff\xfe"}


async def _huge(_: Context) -> Any:
    return "x" * 50_000_000


async def _deep(_: Context) -> Any:
    value: list[Any] = []
    for _n in range(100_000):
        value = [value]
    return value


async def _strange(_: Context) -> Any:
    return object()


async def _nan_in_a_step(ctx: Context) -> Any:
    return await ctx.step("nan", _nan, ctx.attempt)


_MISDEEDS = {
    "raise": _raise,
    "raise_hostile": _raise_hostile,
    "raise_group": _raise_group,
    "exit": _exit,
    "kill": _kill,
    "nan": _nan,
    "nul": _nul,
    "surrogate": _surrogate,
    "bytes": _bytes,
    "huge": _huge,
    "deep": _deep,
    "strange": _strange,
    "nan_in_a_step": _nan_in_a_step,
}


@tool
async def shield_itself(gate: str) -> str:
    """Wait until the file is there, and ignore cancellation."""
    with trio.CancelScope(shield=True):
        await _open(gate)
    return "it is there"
