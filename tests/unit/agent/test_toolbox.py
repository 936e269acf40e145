"""Calls of tools behind their circuit breakers: reports, and how long a job waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.backoff import Backoff
from cortex.domain.control_flow import Suspended, Unfit
from cortex.domain.errors import TransientError
from cortex.domain.failure import Failure
from cortex.domain.job import Finish, JobStatus, Misfit
from cortex.durable.context import Context
from cortex.durable.guarding import WAITS_MAX
from cortex.runtime.job_ending import ending_of
from tests.support.records.factories import (
    ClosedBreakers,
    FactList,
    FreeAdmission,
    a_claim,
    a_context,
    a_tool_call,
)
from tests.support.records.rows import seeded_random

OPEN = Suspended("tool:remote", "breaker tool:remote is open", delay_s=30)


@tool
async def remote(how: str) -> str:
    """Ask something far away."""
    match how:
        case "cut":
            raise ConnectionResetError("cut")
        case "bug":
            raise ValueError("a mistake of its own")
        case _:
            return how


@define
class OpeningBreakers(ClosedBreakers):
    """Whose next failure opens it."""

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[FreeAdmission]:
        admission = _Opening()
        self.admissions.setdefault(name, []).append(admission)
        yield admission


class _Opening(FreeAdmission):
    async def failed(self, failure: Failure) -> None:
        await FreeAdmission.failed(self, failure)
        raise OPEN


async def call(ctx: Context, how: str, folder: Path) -> Any:
    toolbox = Toolbox({"remote": remote})
    asked = a_tool_call("remote", {"how": how}, folder=folder)
    plan = await toolbox.plan(ctx._attempt, asked)
    return await plan.guard(partial(plan.run, None))


def a_job(tmp_path: Path, breakers: ClosedBreakers, waits_count: int = 0, **lent: Any) -> Context:
    claim = a_claim(waits_count=waits_count)
    return a_context(claim=claim, breakers=breakers, workspaces=tmp_path, **lent)


async def test_a_job_that_meets_a_missing_tool_is_handed_back_uncounted(tmp_path: Path) -> None:
    toolbox, ctx = Toolbox({"remote": remote}), a_job(tmp_path, ClosedBreakers())
    with pytest.raises(Unfit, match="this pod has no tool 'look_up'; it has remote") as caught:
        await toolbox.plan(ctx._attempt, a_tool_call("look_up"))
    with pytest.raises(Suspended):
        toolbox.offer(["remote", "look_up"])
    claim = a_claim()
    ending = ending_of(claim, caught.value, backoff=Backoff(), rng=seeded_random())
    assert ending == Misfit(lease=claim.lease, kind="tool", error=caught.value.reason)


async def test_only_remote_failures_count_against_a_breaker(tmp_path: Path) -> None:
    breakers = ClosedBreakers()
    ctx = a_job(tmp_path, breakers)
    assert await call(ctx, "fine", tmp_path) == "fine"
    for how, error in (("cut", ConnectionResetError), ("bug", ValueError)):
        with pytest.raises(error):
            await call(ctx, how, tmp_path)
    fine, cut, bug = breakers.admissions["tool:remote"]
    assert (fine.reports, bug.reports) == ([None], [])
    ((failure,),) = [[each for each in cut.reports if each]]
    assert (failure.code, failure.source) == ("connection_reset", "tool:remote")


async def test_the_failure_that_opens_the_breaker_is_recorded(tmp_path: Path) -> None:
    facts = FactList()
    ctx = a_job(tmp_path, OpeningBreakers(), facts=facts)
    with pytest.raises(Suspended):
        await call(ctx, "cut", tmp_path)
    ((key, failure, output),) = facts.failures
    assert (key, failure.code, output) == (
        "1 remote",
        "connection_reset",
        "the job waits for tool:remote",
    )


@pytest.mark.parametrize(
    "how, waits_count, is_open, source",
    [
        ("cut", 0, False, "tool:remote"),
        ("fine", WAITS_MAX, True, "tool:remote"),
        ("bug", 0, False, None),
    ],
)
async def test_a_job_that_fails_for_good_names_the_breaker_that_its_letter_awaits(
    tmp_path: Path, how: str, waits_count: int, is_open: bool, source: str | None
) -> None:
    claim = a_claim(attempts_spent=3, max_attempts=3, retry_count=2, max_retries=2)
    ctx = a_job(tmp_path, ClosedBreakers(suspended=OPEN if is_open else None), waits_count)
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- several kinds
        await call(ctx, how, tmp_path)
    ending = ending_of(claim, caught.value, backoff=Backoff(), rng=seeded_random())
    assert isinstance(ending, Finish)
    assert (ending.status, ending.error_source) == (JobStatus.FAILED, source)


async def test_job_waits_for_a_tool_a_limited_number_of_times(tmp_path: Path) -> None:
    for waits_count, error in ((WAITS_MAX - 1, Suspended), (WAITS_MAX, TransientError)):
        with pytest.raises(error, match="breaker tool:remote is open"):
            await call(
                a_job(tmp_path, ClosedBreakers(suspended=OPEN), waits_count), "fine", tmp_path
            )
    with pytest.raises(ConnectionResetError):
        await call(a_job(tmp_path, OpeningBreakers(), WAITS_MAX), "cut", tmp_path)
