"""Leaving a phase: grace, cut, abort, errors and cancellation, alone and nested."""

import math
from collections.abc import MutableMapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.actors.phases import Outcome, Phase, PhaseRecord, ShutdownLog, phase


async def work(seconds: float) -> None:
    """End after some time on the mock clock."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


async def crash_after(seconds: float, error: BaseException) -> None:
    await work(seconds)
    raise error


async def crash_when_cancelled(error: Exception) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise error


async def clean_up_for(seconds: float) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await work(seconds)


def outcomes(log: ShutdownLog) -> list[tuple[str, Outcome, float]]:
    return [(record.name, record.outcome, record.took_s) for record in log.records]


async def test_children_that_end_within_the_grace_are_clean(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(work, 30)
    assert trio.current_time() == 30
    assert log.records == [PhaseRecord("jobs", Outcome.CLEAN, took_s=30, deadline_s=40)]
    assert log.is_clean


async def test_the_grace_starts_when_the_body_ends(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(work, 130)
        await work(100)
        assert not jobs.leaving.is_set()
    assert outcomes(log) == [("jobs", Outcome.CLEAN, 30)]


async def test_children_are_cancelled_when_the_grace_is_over(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(trio.sleep_forever)
        jobs.nursery.start_soon(clean_up_for, 2)
    assert outcomes(log) == [("jobs", Outcome.CUT, 42)]
    assert not log.is_clean


async def test_leaving_notifies_the_children(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(jobs.leaving.wait)
    assert outcomes(log) == [("jobs", Outcome.CLEAN, 0)]


async def test_without_grace_children_are_cancelled_by_plan(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("heartbeat", grace_s=0, log=log) as level:
        level.nursery.start_soon(trio.sleep_forever)
        await work(5)
    assert outcomes(log) == [("heartbeat", Outcome.CLEAN, 0)]


async def test_endless_grace_waits(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=math.inf, log=log) as jobs:
        jobs.nursery.start_soon(work, 1e6)
    assert outcomes(log) == [("jobs", Outcome.CLEAN, 1e6)]


@pytest.mark.parametrize("grace_s", [-1, math.nan])
async def test_silly_grace_is_refused(grace_s: float) -> None:
    with pytest.raises(ValueError, match="jobs"):
        async with phase("jobs", grace_s=grace_s, log=ShutdownLog()):
            pass


async def test_grace_can_be_computed_when_the_body_ends(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=lambda: 40 - trio.current_time(), log=log) as jobs:
        jobs.nursery.start_soon(trio.sleep_forever)
        await work(30)
    assert log.records == [PhaseRecord("jobs", Outcome.CUT, took_s=10, deadline_s=10)]


async def test_a_phase_with_no_time_left_is_cut_only_if_there_is_something_to_cut(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    async with phase("full", grace_s=lambda: 0, log=log) as jobs:
        async with phase("empty", grace_s=lambda: 0, log=log):
            jobs.nursery.start_soon(trio.sleep_forever)
    assert outcomes(log) == [("empty", Outcome.CLEAN, 0), ("full", Outcome.CUT, 0)]


async def test_phase_ending_beyond_its_bound_is_late_but_clean(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    for seconds in (1, 3):
        async with phase("intake", grace_s=0, bound_s=2, log=log) as level:
            level.nursery.start_soon(clean_up_for, seconds)
            await wait_all_tasks_blocked()
    assert outcomes(log) == [("intake", Outcome.CLEAN, 1), ("intake", Outcome.LATE, 3)]
    assert log.is_clean, "nothing was cut off"


async def test_timed_block_is_logged_as_a_phase_with_its_outcome(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    with log.timed("drain", deadline_s=5) as block:
        await work(5)
        block.outcome = Outcome.ABORTED
    with pytest.raises(ValueError, match="broken"), log.timed("pool", deadline_s=5):
        raise ValueError("broken")
    assert log.records == [
        PhaseRecord("drain", Outcome.ABORTED, took_s=5, deadline_s=5),
        PhaseRecord("pool", Outcome.FAILED, took_s=0, deadline_s=5),
    ]
    assert [record.is_clean for record in log.records] == [True, False]


async def test_abort_cuts_the_grace_at_once(autojump_clock: MockClock) -> None:
    log = ShutdownLog()

    async def second_signal(jobs: Phase) -> None:
        await work(7)
        jobs.abort()

    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(trio.sleep_forever)
        jobs.nursery.start_soon(second_signal, jobs)
    assert outcomes(log) == [("jobs", Outcome.CUT, 7)]


async def test_abort_before_leaving_spares_the_body_but_gives_no_grace(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    async with phase("jobs", grace_s=40, log=log) as jobs:
        jobs.nursery.start_soon(trio.sleep_forever)
        jobs.abort()
        await work(3)
    assert trio.current_time() == 3
    assert outcomes(log) == [("jobs", Outcome.CUT, 0)]


async def test_an_error_in_the_body_ends_the_phase_without_grace(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="body"), RuntimeError):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("child"))
            await wait_all_tasks_blocked()
            raise ValueError("body")
    assert outcomes(log) == [("jobs", Outcome.FAILED, 0)]


async def test_a_child_that_crashes_during_the_body_ends_it(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(ValueError):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_after, 3, ValueError("child"))
            await trio.sleep_forever()
    assert trio.current_time() == 3
    assert outcomes(log) == [("jobs", Outcome.FAILED, 0)]


async def test_crashes_during_the_grace_are_all_raised(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(ValueError, RuntimeError):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_after, 3, ValueError("first"))
            jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("second"))
    assert outcomes(log) == [("jobs", Outcome.FAILED, 3)]


async def test_an_error_while_being_cut_is_raised(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(RuntimeError):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("cleanup"))
            jobs.nursery.start_soon(trio.sleep_forever)
    assert outcomes(log) == [("jobs", Outcome.FAILED, 40)]


async def test_base_exception_passes_through_a_phase(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(KeyboardInterrupt):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_after, 1, KeyboardInterrupt())
    assert outcomes(log) == [("jobs", Outcome.FAILED, 1)]


async def test_a_cancellation_from_outside_cuts_the_grace(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with trio.move_on_after(10) as outside:
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(trio.sleep_forever)
    assert outside.cancelled_caught
    assert outcomes(log) == [("jobs", Outcome.CANCELLED, 10)]


async def test_a_cancellation_from_outside_ends_the_body(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with trio.move_on_after(10) as outside:
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()
    assert outside.cancelled_caught
    assert trio.current_time() == 10
    assert outcomes(log) == [("jobs", Outcome.CANCELLED, 0)]


async def test_a_cancellation_from_outside_loses_no_error(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(RuntimeError), trio.move_on_after(10):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("cleanup"))
            jobs.nursery.start_soon(trio.sleep_forever)
    assert outcomes(log) == [("jobs", Outcome.FAILED, 10)]


async def test_each_level_gets_its_own_grace_after_the_one_within(
    autojump_clock: MockClock,
) -> None:
    log = ShutdownLog()
    async with phase("pool", grace_s=10, log=log) as pool:
        pool.nursery.start_soon(trio.sleep_forever)
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(trio.sleep_forever)
            async with phase("intake", grace_s=5, log=log) as intake:
                intake.nursery.start_soon(work, 102)
                await work(100)
            assert not jobs.leaving.is_set()
        assert trio.current_time() == 142
        assert not pool.leaving.is_set()
    assert outcomes(log) == [
        ("intake", Outcome.CLEAN, 2),
        ("jobs", Outcome.CUT, 40),
        ("pool", Outcome.CUT, 10),
    ]


async def test_abort_of_one_level_leaves_the_next_its_grace(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    async with phase("committer", grace_s=10, log=log) as committer:
        committer.nursery.start_soon(work, 4)
        async with phase("jobs", grace_s=40, log=log) as jobs:
            jobs.nursery.start_soon(trio.sleep_forever)
            jobs.abort()
    assert outcomes(log) == [("jobs", Outcome.CUT, 0), ("committer", Outcome.CLEAN, 4)]


async def test_an_error_within_ends_every_level_and_none_is_lost(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(ValueError, RuntimeError, OSError, flatten_subgroups=True):
        async with phase("pool", grace_s=10, log=log) as pool:
            pool.nursery.start_soon(crash_when_cancelled, OSError("pool"))
            async with phase("jobs", grace_s=40, log=log) as jobs:
                jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("jobs"))
                async with phase("intake", grace_s=5, log=log) as intake:
                    intake.nursery.start_soon(crash_after, 2, ValueError("intake"))
    assert trio.current_time() == 2
    assert [record.outcome for record in log.records] == [Outcome.FAILED] * 3


async def test_an_error_outside_ends_every_level_within(autojump_clock: MockClock) -> None:
    log = ShutdownLog()
    with pytest.RaisesGroup(ValueError, RuntimeError, flatten_subgroups=True):
        async with phase("pool", grace_s=10, log=log) as pool:
            pool.nursery.start_soon(crash_after, 3, ValueError("pool"))
            async with phase("jobs", grace_s=40, log=log) as jobs:
                jobs.nursery.start_soon(crash_when_cancelled, RuntimeError("jobs"))
                async with phase("intake", grace_s=5, log=log) as intake:
                    intake.nursery.start_soon(trio.sleep_forever)
    assert trio.current_time() == 3
    assert [(r.name, r.outcome) for r in log.records] == [
        ("intake", Outcome.CANCELLED),
        ("jobs", Outcome.FAILED),
        ("pool", Outcome.FAILED),
    ]


async def test_every_phase_is_logged_with_outcome_and_duration(
    log_lines: list[MutableMapping[str, Any]], autojump_clock: MockClock
) -> None:
    async with phase("jobs", grace_s=40, log=ShutdownLog()) as jobs:
        jobs.nursery.start_soon(trio.sleep_forever)
    assert log_lines == [
        {"event": "phase leaving", "log_level": "info", "phase": "jobs", "deadline_s": 40},
        {
            "event": "phase ended",
            "log_level": "warning",
            "phase": "jobs",
            "outcome": "cut",
            "took_s": 40,
            "deadline_s": 40,
        },
    ]
