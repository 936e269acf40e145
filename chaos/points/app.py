"""The application of the pods that die at named points: the programs of a run, and some more.

`CHAOS_LEDGER` is the address of the world outside. Runs inside pods, so this is trio.
"""

from pathlib import Path
from typing import Final

import trio

from chaos.points.programs import running
from chaos.points.waiting_jobs import (
    QUICK,
    adopting,
    calling,
    debounced,
    double,
    due,
    first,
    limited,
    mended,
    parent,
    patient,
    replaced,
    showing,
    single,
    throttled,
)
from chaos.workloads.app import (
    apply_to,
    ask_about,
    chaos_idempotent,
    chaos_program,
    chaos_pure,
    chaos_reconcilable,
    chaos_unsafe,
)
from cortex import Applied, Context, Invocation, NotApplied, ToolContext, job, tool
from cortex.domain.errors import RejectedError, TransientError

__all__ = [
    "adopting",
    "calling",
    "chaos_idempotent",
    "chaos_program",
    "chaos_pure",
    "chaos_reconcilable",
    "chaos_unsafe",
    "debounced",
    "double",
    "due",
    "first",
    "limited",
    "mended",
    "parent",
    "patient",
    "replaced",
    "showing",
    "single",
    "throttled",
]

WAITS_S: Final = 60.0
DONE: Final = "done"


@job("points_nothing", retry=QUICK)
async def nothing(_: Context) -> str:
    """End at once, without a step."""
    return DONE


@job("points_scheduled", retry=QUICK, schedule="0 0 1 1 *")
async def scheduled(_: Context) -> str:
    """End at once; a trial makes an instant of its schedule due."""
    return DONE


@job("points_own", retry=QUICK)
async def own(ctx: Context, account: str) -> str:
    """Call an effect of the job's own, whose outcome can be looked up."""
    await ctx.effect("own", _apply_own, account, reconcile=_ask_own)
    return DONE


@job("points_approved", retry=QUICK)
async def approved(ctx: Context, account: str) -> str:
    """Call an effect that a person has to approve."""
    await ctx.tool("approved", "points_approved_tool", {"account": account})
    return DONE


@job("points_refused", retry=QUICK)
async def refused(ctx: Context, account: str) -> str:
    """Call an effect that the other side refuses: it is never applied, and the job fails."""
    await ctx.tool("refused", "chaos_idempotent", {"account": account, "takes_ms": 0})
    return DONE


@job("points_patched", retry=QUICK)
async def patched(ctx: Context) -> str:
    """Take the new branch whenever it is killed: all pods have this code."""

    async def changed() -> None:
        if not ctx.patched("points"):
            raise RejectedError("a job of this code took the old branch")
        await ctx.step("new", _settled)

    await ctx.step("load", _settled)
    await ctx.gather(changed(), ctx.step("beside", _settled))
    await changed()
    return DONE


async def _settled() -> None:
    await trio.lowlevel.checkpoint()


@job("points_logging", retry=QUICK)
async def logging(ctx: Context) -> str:
    """Write lines before and after a step."""
    ctx.log("begun", attempt=ctx.attempt)
    await ctx.step("load", _settled)
    print("done")
    return DONE


@job("points_later", retry=QUICK)
async def later(ctx: Context) -> str:
    """Ask in the first attempt to be retried later."""
    if ctx.attempt == 1:
        raise TransientError("not yet", retry_after_s=0.1)
    return DONE


@job("points_receiving", retry=QUICK)
async def receiving(ctx: Context) -> str:
    """Wait for a signal."""
    await ctx.receive("go")
    return DONE


@job("points_failing", retry=QUICK)
async def failing(ctx: Context) -> str:
    """Fail in the first attempt for an outside reason, which counts."""
    if ctx.attempt == 1:
        raise ConnectionResetError("the line was cut")
    return DONE


@job("points_endless", retry=QUICK, timeout=1)
async def endless(ctx: Context) -> None:
    """Run into the job's own limit."""
    await ctx.step("endless", trio.sleep_forever)


@job("points_waiting", retry=QUICK)
async def waiting(_: Context, gate: str) -> str:
    """Report that it runs, then wait for a file for as long as the pod permits."""
    running(Path(gate).parent).touch()
    path = trio.Path(gate)
    with trio.fail_after(WAITS_S):
        while not await path.exists():  # noqa: ASYNC110 -- another process makes it
            await trio.sleep(0.02)
    return DONE


async def _apply_own(invocation: Invocation, account: str) -> int:
    return await apply_to(invocation, account, takes_ms=0)


async def _ask_own(invocation: Invocation) -> Applied | NotApplied:
    return await ask_about(invocation, invocation.arguments["account"])


async def _ask(invocation: Invocation) -> Applied | NotApplied:
    return await ask_about(invocation, invocation.arguments["account"])


@tool(effect=True, reconcile=_ask, approve=True, local=True)
async def points_approved_tool(context: ToolContext, account: str) -> int:
    """Apply once a person has approved."""
    return await apply_to(context.invocation, account, takes_ms=0)
