"""The release that a run with deployments begins with."""

from chaos.workloads.app import RETRY, chaos_idempotent, chaos_pure, chaos_reconcilable
from chaos.workloads.deployed import JOB_S, work
from cortex import Context, job

__all__ = ["chaos_idempotent", "chaos_pure", "chaos_reconcilable"]  # a pod finds them here


@job("deploy_added", retry=RETRY, timeout=JOB_S)
async def added(ctx: Context, key: str) -> str:
    return await work(ctx, key)


@job("deploy_removed", retry=RETRY, timeout=JOB_S)
async def removed(ctx: Context, key: str, first: bool = False) -> str:  # noqa: FBT001, FBT002, ARG001
    return await work(ctx, key)


@job("deploy_effect", retry=RETRY, timeout=JOB_S)
async def effect(ctx: Context, key: str) -> str:
    return await work(ctx, key, pay="pay")


@job("deploy_step", retry=RETRY, timeout=JOB_S)
async def step(ctx: Context, key: str) -> str:
    return await work(ctx, key, load="load")


async def greeting(name: str) -> str:
    return f"hello {name}"


@job("deploy_sleep", retry=RETRY, timeout=JOB_S)
async def sleep(ctx: Context, key: str) -> str:
    await ctx.step("greet", greeting, key)
    await ctx.sleep("cool off", seconds=6)
    return await work(ctx, key)


@job("deploy_patched", retry=RETRY, timeout=JOB_S)
async def patched(ctx: Context, key: str) -> str:
    return await work(ctx, key)


@job("deploy_old_type", retry=RETRY, timeout=JOB_S)
async def old_type(ctx: Context, key: str) -> str:
    return await work(ctx, key)
