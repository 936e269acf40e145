"""Fallbacks of jobs in memory: any model's name is answered, and a replay asks nobody."""

from cortex import Context, job
from cortex.testing import Cortex
from tests.providers.test_fallback import FIRST, SECOND, rejected
from tests.unit.testing.conftest import harness

__all__ = ["harness"]


@job
async def asks(ctx: Context) -> list[str | None]:
    response = await ctx.llm(
        "ask", model=FIRST, messages=[{"role": "user", "content": "hi"}], fallback=[SECOND]
    )
    again = await ctx.llm(
        "other", model="google:gemini-x", messages=[{"role": "user", "content": "x"}]
    )
    other = response.substitution
    return [response.text, None if other is None else other.model, again.text]


async def test_a_replay_of_a_handed_over_call_asks_nobody(harness: Cortex) -> None:
    harness.model.script([rejected("authentication"), "from the other", "third"])
    run = await harness.run(asks)
    assert run.result == ["from the other", SECOND, "third"]
    assert [each.model for each in harness.model.requests] == [FIRST, SECOND, "google:gemini-x"]
    run.replays()
    assert len(harness.model.requests) == 3


async def test_a_kill_at_any_point_keeps_the_one_who_answered(harness: Cortex) -> None:
    harness.model.says("from any")
    assert await harness.crash_everywhere(asks) > 0
