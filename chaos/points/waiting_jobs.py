"""The jobs of trials that wait for something, have limits or rules, or show how far they are."""

import os
import time
from pathlib import Path
from typing import Any, Final

import orjson
import trio

from chaos.points.programs import address, notes
from chaos.workloads.model_script import first_message
from chaos.workloads.program import MODEL
from cortex import Concurrency, Context, Debounce, Rate, Retry, Singleton, Throttle, job
from cortex.domain.backoff import Backoff
from cortex.domain.errors import RejectedError

QUICK: Final = Retry(max=5, worker_attempts=4, backoff=Backoff(base_s=0.05, cap_s=0.2))
PERIOD: Final = "1h"
"""Longer than any trial."""


@job("points_calling", retry=QUICK)
async def calling(ctx: Context, gate: str) -> Any:
    """Hand out a callback URL, and wait until somebody has called it."""
    url = await ctx.callback_url("go")
    file = address(Path(gate).parent)
    part = file.with_suffix(".part")
    part.write_text(url)
    part.replace(file)
    return await ctx.receive("go")


@job("points_double", retry=QUICK)
async def double(_: Context, number: int) -> int:
    """Return twice the number, as a child."""
    return 2 * number


@job("points_parent", retry=QUICK)
async def parent(ctx: Context) -> list[int]:
    """Wait for one child, and for several of which two run at once."""
    one = await ctx.spawn(double, number=1)
    rest = [each async for each in ctx.map(double, [2, 3, 4], concurrency=2)]
    return [await one.result(), *rest]


@job("points_patient", retry=QUICK)
async def patient(ctx: Context) -> None:
    """Wait for what never comes, as a child."""
    await ctx.receive("never")


@job("points_first", retry=QUICK)
async def first(ctx: Context) -> list[Any]:
    """Wait for the first of all that there is, then for what a loser left, then for a timer."""
    child = await ctx.spawn(patient)
    won = await ctx.first(
        ctx.sleep("too late", days=1), ctx.approve("buy"), ctx.receive("go"), child.result()
    )
    # The timer is over if its pod was killed with the signal in its hands: then that is given back.
    again = await ctx.first(ctx.sleep("soon", seconds=1.0), ctx.receive("go"))
    left = await ctx.receive("go", timeout=0, default=again.value)
    late = await ctx.first(ctx.receive("go"), ctx.sleep("later", seconds=0.2))
    return [won.name, won.value, left, late.name]


@job("points_mended", retry=QUICK)
async def mended(_: Context, gate: str) -> str:
    """Fail for good until a file exists, as a child."""
    if not await trio.Path(gate).exists():
        raise RejectedError("nobody has mended it")
    return "mended"


@job("points_adopting", retry=QUICK)
async def adopting(ctx: Context, gate: str) -> str:
    """Fail with its child, which the job that continues this one runs again."""
    return await ctx.call(mended, gate=gate)


@job("points_showing", retry=QUICK)
async def showing(ctx: Context) -> list[str]:
    """Show state, progress and chunks; a branch assigns while another one has steps on record."""
    ctx.state["phase"] = "begun"
    ctx.state["draft"] = "begun"

    is_chained = trio.Event()

    async def chain() -> None:
        for number in range(4):
            await ctx.step(f"link{number}", _settled)
        is_chained.set()

    async def branch() -> None:
        ctx.state["branch"] = "waits"
        await ctx.step("branch", is_chained.wait)
        ctx.state["branch"] = "done"
        del ctx.state["draft"]
        ctx.progress(1, 3, "pages")
        await ctx.step("twig", _settled)

    async def inside() -> None:
        ctx.state["inside"] = [1, 2]
        ctx.progress(2, 3, "pages")
        await trio.lowlevel.checkpoint()

    await ctx.gather(branch(), chain())
    await ctx.step("inside", inside)
    for number in range(2):
        await ctx.emit({"part": number})
    ctx.state["phase"] = "over"
    await ctx.emit("last")
    return sorted(ctx.state)


async def _settled() -> None:
    await trio.lowlevel.checkpoint()


def note(ctx: Context, what: str) -> None:
    """Add a line, in one write."""
    line = [str(ctx.job_id), ctx.attempt, what, time.monotonic()]
    with notes(Path(os.environ["CORTEX_DATA"])).open("ab") as file:
        file.write(orjson.dumps(line) + b"\n")


@job(
    "points_limited",
    retry=QUICK,
    limits=[
        Concurrency(1, key="account"),
        Rate(100, per="day", key="account"),
        Rate(100_000, per="day", unit="tokens", key="model"),
    ],
)
async def limited(ctx: Context, account: str, call: str) -> str:  # noqa: ARG001 -- a key
    """Call a model and rest outside its pod, which gives the places back."""
    note(ctx, "begun")
    message = {"role": "user", "content": first_message(call, "call", 0)}
    await ctx.llm("call", model=MODEL, messages=[message], max_tokens=100)
    note(ctx, "rests")
    await ctx.first(ctx.sleep("rest", seconds=0.4))
    note(ctx, "begun")
    await ctx.step("end", _settled)
    note(ctx, "ended")
    return "done"


@job("points_due", retry=QUICK)
async def due(ctx: Context, number: int) -> int:
    """Note that it runs, for jobs that are paused and have deadlines."""
    note(ctx, "begun")
    return number


@job("points_single", retry=QUICK, singleton="{customer}")
async def single(_: Context, customer: int, number: int) -> int:
    """Run once for all submits of a customer."""
    return customer + number


@job("points_replaced", retry=QUICK, singleton=Singleton("{customer}", when="replace"))
async def replaced(_: Context, customer: int, number: int) -> int:
    """Run for the last submit of a customer."""
    return customer + number


@job("points_debounced", retry=QUICK, debounce=Debounce("2s", key="{customer}"))
async def debounced(_: Context, customer: int, number: int) -> int:
    """Run with the last arguments of a burst."""
    return customer + number


@job("points_throttled", retry=QUICK, throttle=Throttle(PERIOD, key="{customer}"))
async def throttled(_: Context, customer: int, number: int) -> int:
    """Run once for all submits of an hour."""
    return customer + number
