"""The application of pods whose effects are tested: payments into a ledger, of every kind.

Each kind has its own rule for calls whose outcome was not recorded. `LEDGER_URL` is where the
ledger is.
"""

import os
from pathlib import Path
from typing import Any

import httpx2
import trio

from chaos.cluster.ledger import ATTEMPT_HEADER, KEY_HEADER
from cortex.agent.tools.tool import ToolContext, tool
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import RejectedError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

CALL_S = 30.0
EFFECT = os.environ.get("EFFECT_NAME", "pay")
"""The name of the job's own effect: one release may call it otherwise than the next."""
GATE_POLL_S = 0.05


def _headers(invocation: Invocation) -> dict[str, str]:
    return {KEY_HEADER: str(invocation.id), ATTEMPT_HEADER: str(invocation.attempt)}


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=os.environ["LEDGER_URL"], timeout=CALL_S, trust_env=False)


async def _pay(invocation: Invocation, account: str) -> int:
    """Pay; passes `during_call` before anything was sent, and again when it was applied."""
    crash_point("during_call")
    async with _client() as client:
        answer = await client.post(
            f"/{account}", json=dict(invocation.arguments), headers=_headers(invocation)
        )
    crash_point("during_call")
    answer.raise_for_status()
    return int(answer.json()["result"])


async def _find(invocation: Invocation, account: str) -> Verdict:
    """Look a payment up; `account` says what goes wrong with that."""
    if account.startswith("closed"):
        gate = trio.Path(os.environ["LEDGER_GATE"])
        if not await gate.exists():
            raise ConnectionRefusedError(111, "the ledger is closed")
    if account.startswith("buggy"):
        raise KeyError("payments")
    if account.startswith("vague"):
        return Unknown("two payments look like it")
    async with _client() as client:
        answer = await client.get(f"/{account}/{invocation.id}", headers=_headers(invocation))
    found = answer.json()
    return Applied(found["result"]) if found["applied"] else NotApplied()


async def _find_by_arguments(invocation: Invocation) -> Verdict:
    return await _find(invocation, invocation.arguments["account"])


async def _find_payment(invocation: Invocation) -> Verdict:
    return await _find(invocation, invocation.arguments["account"])


@tool(effect=True, idempotent=True, local=True)
async def pay_keyed(context: ToolContext, account: str) -> int:
    """Pay where the key is honoured."""
    return await _pay(context.invocation, account)


@tool(effect=True, reconcile=_find_by_arguments, local=True)
async def pay_asked(context: ToolContext, account: str) -> int:
    """Pay where payments can be looked up."""
    return await _pay(context.invocation, account)


@tool(effect=True, local=True)
async def pay_blind(context: ToolContext, account: str) -> int:
    """Pay where nothing helps."""
    return await _pay(context.invocation, account)


@tool(effect=True, reconcile=_find_by_arguments, approve=True, local=True)
async def pay_approved(context: ToolContext, account: str, amount: float = 1.0) -> int:
    """Pay when a person has agreed."""
    return await _pay(context.invocation, account)


QUICK = Retry(max=3, worker_attempts=3, backoff=Backoff(base_s=0.05, cap_s=0.1))


@job("pay", retry=QUICK)
async def pay(ctx: Context, kind: str, account: str) -> Any:
    """Pay once by one of the kinds; return the ledger's number of the payment."""
    if kind == "effect":
        return await ctx.effect(EFFECT, pay_once, account, reconcile=_find_payment)
    if kind == "moved" and EFFECT != "pay":
        return await ctx.effect("move", pay_moved, account=account, reconcile=_find_payment)
    if kind == "moved":
        return await ctx.effect("move", pay_once, account, reconcile=_find_payment)
    return await ctx.tool("pay", f"pay_{kind}", {"account": account})


async def pay_once(invocation: Invocation, account: str) -> int:
    return await _pay(invocation, account)


async def pay_moved(invocation: Invocation, account: str, note: str = "") -> int:
    """`pay_once` in the next release."""
    return await pay_once(invocation, account + note)


@job("pay_gated", retry=QUICK)
async def pay_gated(ctx: Context, kind: str, account: str, gate: str) -> Any:
    """Wait for the gate, then pay."""
    await _open(gate)
    return await ctx.tool("pay", f"pay_{kind}", {"account": account})


async def _open(gate: str) -> None:
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 -- the test is another process
        await trio.sleep(GATE_POLL_S)


def output(error: Exception) -> dict[str, str]:
    """The text that an agent would receive."""
    return {"told": f"{type(error).__name__}: {error}"}


@job("pay_and_tell", retry=QUICK)
async def pay_and_tell(ctx: Context, kind: str, account: str) -> Any:
    """Pay; return the text that an agent would receive for a failure."""
    return await ctx.tool("pay", f"pay_{kind}", {"account": account}, on_error=output)


@job("pay_both", retry=QUICK)
async def pay_both(ctx: Context, kind: str, account: str, accounts: list[str]) -> Any:
    """Pay several at once, each when a person has agreed."""
    calls = (ctx.tool("pay", "pay_approved", {"account": account}) for account in accounts)
    return await ctx.gather(*calls)


@tool(effect=True, local=True)
async def refuse_itself(context: ToolContext, account: str) -> int:
    """Pay, and then find that it should not have."""
    raise RejectedError(f"{account} is closed")
