"""`sweep_zombies` and `expire_approvals`: one run of a runner as a job, for the built-in schedules.

The pods' own loops do the same, and more often. As jobs the runs have a history, attempts and
dead letters, and a cluster's operator sees that somebody still does them.
"""

from cortex.durable.attempt import UpkeepResult
from cortex.durable.context import Context
from cortex.durable.registry import job


@job("sweep_zombies")
async def sweep_zombies(ctx: Context) -> UpkeepResult:
    """Free the jobs of pods that are silent."""
    return await ctx.services.upkeep.run_once("sweep_zombies")


@job("expire_approvals")
async def expire_approvals(ctx: Context) -> UpkeepResult:
    """Close requests for approval that were not decided in time."""
    return await ctx.services.upkeep.run_once("expire_approvals")
