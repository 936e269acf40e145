# app.py
"""Refunds of orders: a job, and the tools that the agent in clerk.yaml uses, too."""

import json
from dataclasses import dataclass
from pathlib import Path

from cortex import Applied, Context, Invocation, NotApplied, ToolContext, job, tool

ASK_ABOVE_EUROS = 20
ORDERS = {"1042": ("Ada", 48.0), "1043": ("Bob", 12.0)}
BANK = Path("bank")  # stands for a bank: one file is one payment


@dataclass(frozen=True)
class Order:
    number: str
    customer: str
    euros: float


@tool
def find_order(number: str) -> Order:
    """Find an order by its number."""
    customer, euros = ORDERS[number]
    return Order(number, customer, euros)


async def find_refund(invocation: Invocation) -> Applied | NotApplied:
    """Return whether a refund was paid, after a crash in the middle of it."""
    receipt = BANK / f"{invocation.id}.json"
    return Applied(receipt.name) if receipt.exists() else NotApplied()


@tool(effect=True, reconcile=find_refund, risk="MED", says="money leaves the account")
def refund(context: ToolContext, number: str, euros: float) -> str:
    """Refund an order."""
    BANK.mkdir(exist_ok=True)
    receipt = BANK / f"{context.invocation.id}.json"
    receipt.write_text(json.dumps({"order": number, "euros": euros}))
    return receipt.name


@job(final=(KeyError,))
async def refund_order(ctx: Context, number: str) -> str:
    """Refund an order; a person agrees first if it is a large one."""
    order = await ctx.tool("find order", find_order, {"number": number})
    if order.euros > ASK_ABOVE_EUROS:
        question = {"to": order.customer, "euros": order.euros}
        await ctx.approve("large refund", detail=question)
    await ctx.tool("refund", refund, {"number": number, "euros": order.euros})
    return f"refunded {order.euros} euros to {order.customer}"
