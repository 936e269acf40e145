"""The application of pods whose approvals are tested: refunds that are written down, and gates.

`REFUNDS` names the file to which every refund adds a line: its arguments and its invocation.
"""

import json
import os
from pathlib import Path
from typing import Any

from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.errors import CortexError, RejectedError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": False,
}


@tool(effect=True, idempotent=True, local=True)
def refund(context: ToolContext, customer: str, amount: float) -> str:
    """Pay money back."""
    done = {"customer": customer, "amount": amount, "id": str(context.invocation.id)}
    with Path(os.environ["REFUNDS"]).open("a") as file:
        file.write(json.dumps(done) + "\n")
    return f"refunded {amount} to {customer}"


@tool(effect=True, idempotent=True, local=True, approve=True, risk="MED")
def refund_asked(context: ToolContext, customer: str, amount: float) -> str:
    """Pay money back when a person has agreed."""
    return str(refund.run(context, customer=customer, amount=amount))


@job("ship")
async def ship(ctx: Context, count: int, expires_s: float = 3600.0) -> Any:
    """Ask a person; return what was agreed to, or what became of the question."""
    try:
        decision = await ctx.approve(
            "ship", detail={"count": count}, schema=SCHEMA, expires_s=expires_s, reason="it is far"
        )
    except CortexError as error:
        return error.code
    return decision.arguments


@job("refund_two")
async def refund_two(ctx: Context) -> Any:
    """Refund two at once, each when a person has agreed."""
    return await ctx.gather(
        *(
            ctx.tool("pay", "refund_asked", {"customer": name, "amount": 1.0})
            for name in ("one", "two")
        )
    )


@job("refund_and_fail", retry=Retry(max=0, worker_attempts=1))
async def refund_and_fail(ctx: Context, gate: str) -> Any:
    """Refund when a person has agreed, then fail unless the gate is open."""
    output = await ctx.tool("pay", "refund_asked", {"customer": "one", "amount": 1.0})
    if not Path(gate).exists():  # noqa: ASYNC240 -- the test is another process
        raise RejectedError("the gate is closed")
    return output


@job("count")
async def count(ctx: Context) -> int:
    """Need no person."""
    return ctx.attempt
