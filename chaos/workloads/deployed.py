"""The jobs of a run with deployments: two releases of one application take turns on its pods.

`deployed_old` and `deployed_new` declare the same job types with what a deployment changes: an
argument more, one less, the name of an effect, of a step, of a helper and of a type, the length of
a sleep. Runs inside pods, so this is trio.
"""

from typing import Final

import trio

from chaos.workloads.deployments import TAKES_MS, account_of, kind_of
from cortex import Context

JOB_S: Final = 900


async def work(ctx: Context, key: str, *, load: str = "load", pay: str = "pay") -> str:
    """Make three steps, of which the second acts outside."""

    async def order_of(key: str) -> str:
        await trio.sleep(TAKES_MS / 1000)
        return key

    await ctx.step(load, order_of, key)
    arguments = {"account": account_of(key), "takes_ms": TAKES_MS}
    await ctx.tool(pay, f"chaos_{kind_of(key)}", arguments)
    await ctx.tool("note", "chaos_pure", {"takes_ms": TAKES_MS})
    return key
