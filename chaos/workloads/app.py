"""The application of a run's pods: one job type, which does what its program says.

    cortex up --app chaos.workloads.app

`CHAOS_LEDGER` is the address of the world outside, `CHAOS_RECEIVER` that of the receivers of
messages. Runs inside pods, so this is trio.
"""

import functools
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import trio

from chaos.cluster.ledger import ATTEMPT_HEADER, KEY_HEADER
from chaos.cluster.receiver import ID_HEADER
from chaos.workloads.messages import BY_STEP
from chaos.workloads.model_script import AGENT_TOOL, first_message
from chaos.workloads.program import (
    LINES,
    MODEL,
    NOTE,
    PAUSE_MAX_S,
    PAUSE_S,
    SIGNALS,
    Op,
    account,
    model_of,
)
from chaos.workloads.ruled_jobs import (
    ruled_debounce,
    ruled_queue,
    ruled_refuse,
    ruled_replace,
    ruled_return,
    ruled_throttle,
)
from cortex import (
    Applied,
    Context,
    Invocation,
    Message,
    NotApplied,
    Retry,
    ToolContext,
    TransientError,
    handler,
    job,
    tool,
)
from cortex.agent.loop import run_agent
from cortex.agent.spec import AgentSpec
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.classification import failure_of
from cortex.domain.failure import FailureClass

__all__ = [  # a pod finds them here
    "ruled_debounce",
    "ruled_queue",
    "ruled_refuse",
    "ruled_replace",
    "ruled_return",
    "ruled_throttle",
]

CALL_S: Final = 30.0
SLICE: Final = 20
"""Lines that a program writes without a pause."""
MODEL_CALL_S: Final = 8.0
"""Many times an answer's duration: a stalled one ends while the run is still judged."""
APPROVAL_EXPIRES_S: Final = 3600
RETRY: Final = Retry(max=30, worker_attempts=40, backoff=Backoff(base_s=0.1, cap_s=1.0))
"""Patient: a job that is hit by many faults in turn must still end."""
AGENT: Final = AgentSpec(
    name="chaos", model=MODEL, system="You note.", tools=(AGENT_TOOL,), max_tokens=200
)
WORKER_PAUSES: Final = 2
"""Pauses grow to hours with each attempt: after this many, a failure counts for the application."""


@job("chaos_program", retry=RETRY, timeout=900)
async def chaos_program(ctx: Context, key: str, operations: list[dict[str, Any]]) -> int:
    """Do the operations one after another; return their number."""
    for place, operation in enumerate(operations):
        op = Op(operation["op"])
        try:
            await _perform(ctx, op, key, place, takes_ms=operation["takes_ms"])
        except Exception as error:
            is_infra = failure_of(error).cls is FailureClass.TRANSIENT_INFRA
            if is_infra and ctx.attempt > WORKER_PAUSES:
                raise TransientError(f"{place}:{op}: {error}") from error
            raise
    return len(operations)


async def _receive(ctx: Context, name: str, key: str) -> None:
    """Receive the next signal, beside a timer that is over now and then, and comes first."""
    pause_s, has_come = PAUSE_S, False
    while not has_come:
        won = await ctx.first(
            ctx.sleep(f"{name} pause", pause_s), ctx.receive(name, key=key), name=f"{name} first"
        )
        pause_s, has_come = min(PAUSE_MAX_S, 2 * pause_s), won.index == 1


async def _perform(  # noqa: C901, PLR0912 -- one case an operation
    ctx: Context, op: Op, key: str, place: int, *, takes_ms: int
) -> None:
    name = f"{place}:{op}"
    match op:
        case Op.MODEL | Op.RETRY:
            await ctx.llm(
                name,
                model=model_of(op, key),
                messages=[{"role": "user", "content": first_message(key, name, takes_ms)}],
                max_tokens=200,
                timeout=MODEL_CALL_S,
                urgency="realtime",
            )
        case Op.PURE:
            await ctx.tool(name, "chaos_pure", {"takes_ms": takes_ms})
        case Op.IDEMPOTENT | Op.RECONCILABLE | Op.UNSAFE | Op.RENAMED:
            arguments = {"account": account(op, key, place), "takes_ms": takes_ms}
            is_renamed = op is Op.RENAMED and ctx.attempt > 1
            tool = f"chaos_{Op.UNSAFE if op is Op.RENAMED else op}"
            await ctx.tool(f"{name} anew" if is_renamed else name, tool, arguments)
        case Op.APPROVAL:
            detail = {"key": key, "place": place}
            await ctx.approve(name, detail=detail, expires_s=APPROVAL_EXPIRES_S)
        case Op.PUBLISH:
            await ctx.publish(BY_STEP, {"key": key, "place": place}, key=key)
        case Op.NOTIFY:
            data = {"key": key, "place": place}
            note = {"text": "all is well", "topic": NOTE, "data": data}
            await ctx.tool(name, "send_notification", note)
        case Op.AGENT:
            prompt = first_message(key, name, takes_ms)
            run = functools.partial(
                run_agent, ctx, AGENT, prompt=prompt, folder=None, prefix=f"{name}: "
            )
            await ctx.group(name, run, given={"prompt": prompt})
        case Op.SIGNALS:
            for number in range(SIGNALS):
                await (_receive(ctx, name, key) if number else ctx.receive(name, key=key))
                await ctx.emit(number, name=f"{name} chunk")
        case Op.SLEEP:
            await ctx.step(name, trio.sleep, takes_ms / 1000)
        case Op.LOG | Op.FLOOD:
            lines = functools.partial(_log, ctx, op, place, takes_s=takes_ms / 1000)
            await ctx.step(name, lines)
        case Op.POISON:
            await ctx.step(name, _kill_own_process)
        case Op.CRASH:
            if await _is_first_time(ctx, name):
                await _kill_own_process()
        case Op.STRAY:
            if await _is_first_time(ctx, name):
                await STRAYS[sum(key.encode(), place) % len(STRAYS)](ctx, f"{name} in a step")


async def _log(ctx: Context, op: Op, place: int, *, takes_s: float) -> int:
    """Write numbered lines; return how many. An attempt that repeats the step repeats them."""
    count = LINES[op]
    level = "info" if op is Op.LOG else "debug"  # a flood is not for the pod's own log
    for n in range(count):
        ctx.log("a line of a program", level, place=place, n=n)
        if n % SLICE == 0:
            await trio.sleep(takes_s * SLICE / count)
    return count


async def _is_first_time(ctx: Context, name: str) -> bool:
    async def began() -> int:
        return ctx.attempt

    return bool(await ctx.step(name, began) == ctx.attempt)


class Stop(BaseException):
    """An error of a library's own that is no `Exception`."""


async def _interrupt() -> None:
    await trio.lowlevel.checkpoint()
    raise KeyboardInterrupt


async def _exit() -> None:
    await trio.lowlevel.checkpoint()
    raise SystemExit(3)


async def _stop_in_handler(_: Context, __: str) -> None:
    raise Stop


async def _stop_in_step(ctx: Context, name: str) -> None:
    await ctx.step(name, _interrupt)


async def _stop_in_gather(ctx: Context, name: str) -> None:
    await ctx.gather(ctx.step(name, _exit), ctx.step(f"{name} too", trio.sleep, 1))


async def _stop_in_nursery(_: Context, __: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupt)
        nursery.start_soon(trio.sleep, 1)


STRAYS: Final = (_stop_in_handler, _stop_in_step, _stop_in_gather, _stop_in_nursery)


async def _kill_own_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool(local=True)
async def chaos_pure(takes_ms: int) -> int:
    """Change nothing outside."""
    await trio.sleep(takes_ms / 1000)
    return takes_ms


@tool(local=True)
async def chaos_note(words: str = "nothing") -> str:
    """Return the words."""
    return words


@tool(effect=True, idempotent=True, local=True)
async def chaos_idempotent(context: ToolContext, account: str, takes_ms: int) -> int:
    """Apply where the key is honoured."""
    return await _apply(context, account, takes_ms)


async def _ask(invocation: Invocation) -> Applied | NotApplied:
    return await ask_about(invocation, invocation.arguments["account"])


async def ask_about(invocation: Invocation, account: str) -> Applied | NotApplied:
    """Look up the outcome of an invocation in the ledger."""
    path = f"/{account}/{invocation.id}"
    outcome = (await _ledger().get(path, headers=_headers(invocation))).raise_for_status().json()
    return Applied(outcome["result"]) if outcome["applied"] else NotApplied()


@tool(effect=True, reconcile=_ask, local=True)
async def chaos_reconcilable(context: ToolContext, account: str, takes_ms: int) -> int:
    """Apply where the outcome can be looked up."""
    return await _apply(context, account, takes_ms)


@tool(effect=True, local=True)
async def chaos_unsafe(context: ToolContext, account: str, takes_ms: int) -> int:
    """Apply where neither helps."""
    return await _apply(context, account, takes_ms)


async def _apply(context: ToolContext, account: str, takes_ms: int) -> int:
    return await apply_to(context.invocation, account, takes_ms=takes_ms)


async def apply_to(invocation: Invocation, account: str, *, takes_ms: int) -> int:
    """Apply in the ledger; passes `during_call` before anything is sent, and after it was sent."""
    crash_point("during_call")
    answer = await _ledger().post(
        f"/{account}", json={"takes_ms": takes_ms}, headers=_headers(invocation)
    )
    crash_point("during_call")
    result: int = answer.raise_for_status().json()["result"]
    return result


def _headers(invocation: Invocation) -> Mapping[str, str]:
    return {KEY_HEADER: str(invocation.id), ATTEMPT_HEADER: str(invocation.attempt)}


@handler("*")
async def chaos_handler(message: Message) -> None:
    """Pass a message on to the receiver."""
    body = {"type": message.topic, "data": dict(message.payload)}
    headers = {ID_HEADER: str(message.id)}
    answer = await _receiver().post("/chaos_handler", json=body, headers=headers)
    answer.raise_for_status()


@functools.cache
def _receiver() -> httpx2.AsyncClient:
    return _client(os.environ["CHAOS_RECEIVER"])


@functools.cache
def _ledger() -> httpx2.AsyncClient:
    """One client for all calls: making one costs more than a call."""
    return _client(os.environ["CHAOS_LEDGER"])


def _client(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(base_url=url, timeout=CALL_S, trust_env=False, limits=limits)
