"""The release that a run with deployments brings, and takes back."""

from chaos.workloads.app import RETRY, chaos_idempotent, chaos_pure, chaos_reconcilable
from chaos.workloads.deployed import JOB_S, work
from cortex import Context, job

__all__ = ["chaos_idempotent", "chaos_pure", "chaos_reconcilable"]  # a pod finds them here


@job("deploy_added", retry=RETRY, timeout=JOB_S)
async def added(ctx: Context, key: str, site: str = "main") -> str:  # noqa: ARG001
    return await work(ctx, key)


@job("deploy_removed", retry=RETRY, timeout=JOB_S)
async def removed(ctx: Context, key: str) -> str:
    return await work(ctx, key)


@job("deploy_effect", retry=RETRY, timeout=JOB_S)
async def effect(ctx: Context, key: str) -> str:
    return await work(ctx, key, pay="charge")


@job("deploy_step", retry=RETRY, timeout=JOB_S)
async def step(ctx: Context, key: str) -> str:
    return await work(ctx, key, load="fetch")


async def welcome(name: str) -> str:
    """Stand in for `greeting` of the old release: the same step, renamed."""
    return f"hello {name}"


@job("deploy_sleep", retry=RETRY, timeout=JOB_S)
async def sleep(ctx: Context, key: str) -> str:
    await ctx.step("greet", welcome, key)
    await ctx.sleep("cool off", seconds=9)
    return await work(ctx, key)


@job("deploy_patched", retry=RETRY, timeout=JOB_S)
async def patched(ctx: Context, key: str) -> str:
    return await work(ctx, key, pay="charge" if ctx.patched("charge") else "pay")


@job("deploy_new_type", retry=RETRY, timeout=JOB_S)
async def new_type(ctx: Context, key: str) -> str:
    return await work(ctx, key)
