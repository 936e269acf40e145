"""Each way in which schedules can be sick: two jobs for an instant, none, or one without it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from chaos.checkers import i27_schedules
from chaos.checkers.verdict import Result
from tests.support.evidence import Run

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
JOBS = [{"id": UUID(int=n), "submitted_by": "schedule:s"} for n in range(3)]
OTHER = {"id": UUID(int=9), "submitted_by": None}


def instant(number: int, **fields: Any) -> dict[str, Any]:
    at = NOON + timedelta(minutes=number)
    row = {"schedule": "s", "instant": at, "outcome": "SUBMITTED", "job_id": UUID(int=number)}
    return row | fields


BACK = NOON + timedelta(minutes=3, seconds=5)
"""When what was due at noon is made up for."""
LATE = instant(0, at=BACK)
CANCELLED = "the instant 2026-06-01T12:01:00+00:00 of its schedule is due"
HEALTHY = [
    *(instant(n) for n in range(3)),
    instant(3, outcome="SKIPPED", job_id=None),
]


def check(instants: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> Any:
    evidence = Run().evidence()
    return i27_schedules.check(evolve(evidence, instants=tuple(instants), jobs=(*jobs, OTHER)))


def test_one_job_for_each_instant_is_healthy() -> None:
    assert check(HEALTHY, JOBS).result is Result.VALID


@pytest.mark.parametrize(
    "instants, jobs, why",
    [
        (HEALTHY, JOBS[1:], "s at 2026-06-01T12:00:00+00:00 has no job"),
        (HEALTHY[1:], JOBS, f"job {UUID(int=0)} of schedule:s has no instant"),
        (
            [LATE, instant(3, outcome="SKIPPED", job_id=None, reason="not ended")],
            JOBS[:1],
            "s skipped 2026-06-01T12:03:00+00:00, which was due in an outage: not ended",
        ),
        (
            [LATE, instant(1, at=BACK)],
            [JOBS[0] | {"cancel_reason": CANCELLED}, JOBS[1]],
            "s cancelled the job of 2026-06-01T12:00:00+00:00 for 2026-06-01T12:01:00+00:00",
        ),
        (
            [*HEALTHY[1:], instant(0, job_id=UUID(int=1))],
            JOBS[1:],
            "s at 2026-06-01T12:01:00+00:00 shares its job with another instant",
        ),
    ],
)
def test_a_sick_schedule_is_seen(
    instants: list[dict[str, Any]], jobs: list[dict[str, Any]], why: str
) -> None:
    verdict = check(instants, jobs)
    assert verdict.result is Result.INVALID
    assert any(why in each for each in verdict.why)


def test_an_instant_that_was_passed_over_is_seen_unless_it_was_missed() -> None:
    run = Run()
    run.tell(1, "run", "schedule", name="s", first=NOON.isoformat(), minutes=[*range(60)])
    jobs: tuple[dict[str, Any], ...] = (*JOBS, OTHER)
    schedule = {"name": "s", "next_at": NOON + timedelta(minutes=4), "missed_count": 0}
    evidence = evolve(run.evidence(), instants=tuple(HEALTHY), jobs=jobs, schedules=(schedule,))
    assert i27_schedules.check(evidence).result is Result.VALID
    gap = evolve(evidence, instants=(HEALTHY[0], *HEALTHY[2:]), jobs=(JOBS[0], JOBS[2]))
    assert "passed over 1 instants" in i27_schedules.check(gap).why[0]
    missed = evolve(gap, schedules=(schedule | {"missed_count": 1},))
    assert i27_schedules.check(missed).result is Result.VALID


def test_an_instant_that_waits_at_rest_is_seen() -> None:
    run = Run()
    run.phase(9, "quiet")
    waits = instant(3, outcome="QUEUED", job_id=None)
    evidence = evolve(run.evidence(), instants=(waits,))
    assert "QUEUED" in i27_schedules.check(evidence).why[0]
