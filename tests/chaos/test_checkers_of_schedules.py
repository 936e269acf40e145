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
