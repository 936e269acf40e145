"""How long the provider keeps an agent's prompt between its turns.

Each turn repeats the prompt of the turn before, so that caching pays from the second turn on: a
read costs a tenth of the input, a write 1.25 times as much for five minutes and twice for an hour.
A pause that is longer than the cache's life costs the whole prompt again.
"""

from collections.abc import Collection, Iterable
from typing import Final

import attrs

from cortex.agent.spec import AgentSpec
from cortex.domain.model import CacheTtl
from cortex.durable.attempt import Tools

LONG_S: Final = 300.0
"""The life of the shorter cache, and so the longest pause that it survives."""


def ttl_of(spec: AgentSpec, tools: Tools, *, has_waited: bool) -> CacheTtl:
    """Return how long an agent's prompt is kept, with the tools that the pod has for it."""
    asking = filter(tools.asks, spec.tools)
    slow = [each for each in spec.tools if tools.lasts_over(each, LONG_S)]
    return chosen_ttl(spec, asking=asking, slow=slow, has_waited=has_waited)


def chosen_ttl(
    spec: AgentSpec, *, asking: Iterable[str], slow: Collection[str], has_waited: bool
) -> CacheTtl:
    """Return how long an agent's prompt is kept: the same for a job, whichever pod runs it.

    `asking`: the agent's tools whose own mark asks people; `slow`: those whose own time-out is over
    five minutes. `has_waited`: the job has waited for people before. An hour is chosen if people
    are likely to be asked between two turns, or if a tool may run for over five minutes.
    """
    if spec.cache.ttl is not None:
        return CacheTtl(str(spec.cache.ttl))
    asks_by_rule = any(each.approve for each in spec.approvals)
    asks_on_stop = "ask" in attrs.asdict(spec.on_stop).values()
    timeouts = spec.limits.tool_timeouts
    limits_s = [*timeouts.values(), *(each.timeout for each in spec.mcp.values())]
    is_slow = any(each > LONG_S for each in limits_s) or bool(set(slow) - timeouts.keys())
    pauses = has_waited or asks_by_rule or asks_on_stop or is_slow or any(asking)
    return CacheTtl.HOUR if pauses else CacheTtl.FIVE_MINUTES
