"""The deadlines of a pod that leaves: they count from the signal, and an early abort draws near."""

from trio.testing import MockClock

from cortex.domain.drain import DrainPhase, DrainStatus
from cortex.runtime.liveness.drain import Drain
from cortex.runtime.running import RunningJobs, Stop
from tests.support.records.factories import a_claim

INTAKE, JOBS, HAND_BACK, FLUSH, SIGN_OFF = DrainPhase


def a_drain(
    running: RunningJobs | None = None, *, output: list[DrainPhase | None] | None = None
) -> Drain:
    def changed() -> None:
        if output is not None:
            output.append(drain.phase)

    drain = Drain(
        drain_s=40, close_s=10, running=running or RunningJobs(slots=5), on_change=changed
    )
    return drain


async def test_deadlines_count_from_the_signal(mock_clock: MockClock) -> None:
    drain = a_drain()
    assert drain.status is None
    drain.enter(INTAKE)
    mock_clock.jump(12)  # spent in the first phase
    drain.enter(JOBS)
    assert drain.left_s(JOBS) == 28
    assert [drain.left_s(phase) for phase in (HAND_BACK, FLUSH, SIGN_OFF)] == [36.5, 37.5, 38]
    mock_clock.jump(100)
    assert {drain.left_s(phase) for phase in (JOBS, HAND_BACK, FLUSH, SIGN_OFF)} == {0}


async def test_early_abort_only_brings_later_deadlines_forward(
    mock_clock: MockClock,
) -> None:
    drain = a_drain()
    drain.enter(INTAKE)
    drain.enter(JOBS)
    mock_clock.jump(3)
    drain.enter(HAND_BACK)
    assert [drain.left_s(phase) for phase in (JOBS, HAND_BACK, SIGN_OFF)] == [0, 8.5, 10]
    mock_clock.jump(4)
    drain.enter(FLUSH)
    assert [drain.left_s(phase) for phase in (HAND_BACK, FLUSH, SIGN_OFF)] == [4.5, 5.5, 6]


async def test_drain_status_is_visible(mock_clock: MockClock) -> None:
    running, output = RunningJobs(slots=5), list[DrainPhase | None]()
    running.add(a_claim())
    drain = a_drain(running, output=output)
    drain.enter(INTAKE)
    drain.enter(JOBS)
    mock_clock.jump(10)
    assert drain.status == DrainStatus(phase=JOBS, jobs_left=1, abort_in_s=30, closed_in_s=40)
    assert output == [INTAKE, JOBS]


async def test_phases_do_not_go_back(mock_clock: MockClock) -> None:
    drain = a_drain()
    for phase in (INTAKE, HAND_BACK, JOBS):  # claiming hung until the jobs were gone
        drain.enter(phase)
    assert drain.phase is HAND_BACK


async def test_a_pod_that_crashes_has_all_the_time_that_closing_gets(mock_clock: MockClock) -> None:
    assert a_drain().left_s(SIGN_OFF) == 10


async def test_claim_of_a_leaving_pod_is_handed_back_at_once() -> None:
    running = RunningJobs(slots=5)
    before = running.add(a_claim())
    running.leaving.set()
    late = running.add(a_claim())
    assert (before.stop, late.stop) == (None, Stop.HANDED_BACK)
