"""`@job(schedule=…)`: valid and refused declarations."""

from datetime import datetime
from typing import Any

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.schedules.schedule import Overlap
from cortex.durable.context import Context
from cortex.durable.registry import JobType, Registry, job


def declared(**terms: Any) -> JobType[..., Any]:
    @job("work", **terms)
    async def work(ctx: Context, scheduled_at: datetime, days: int = 1) -> None: ...

    return work


def test_a_job_type_declares_a_schedule_of_its_name() -> None:
    made = declared(
        schedule="0 3 * * *", tz="Europe/Berlin", backfill="6h", overlap="queue", jitter=60
    )
    assert made.schedule is not None
    assert (made.schedule.name, made.schedule.type) == ("work", "work")
    assert (made.schedule.cron.expression, made.schedule.cron.zone) == (
        "0 3 * * *",
        "Europe/Berlin",
    )
    assert (made.schedule.backfill_s, made.schedule.jitter_s) == (21_600, 60)
    assert (made.schedule.overlap, made.schedule.instant_as) == (Overlap.QUEUE, "scheduled_at")
    assert Registry([made]).schedules == (made.schedule,)


def test_job_type_without_a_declaration_has_no_schedule() -> None:
    assert declared().schedule is None
    assert Registry([declared()]).schedules == ()


@pytest.mark.parametrize(
    "terms, message",
    [
        ({"schedule": "0 0 31 2 *"}, "job type 'work': cron '0 0 31 2 *' never fires"),
        ({"schedule": "* * * *"}, "job type 'work': cron '* * * *' has 4 of 5 fields"),
        ({"schedule": "* * * * *", "tz": "Mars"}, "job type 'work': tz 'Mars' is not a time zone"),
        ({"schedule": "* * * * *", "overlap": "no"}, "job type 'work': overlap 'no' is none of"),
        ({"schedule": "* * * * *", "backfill": "x"}, "job type 'work': backfill 'x' is not a time"),
        ({"tz": "UTC", "jitter": 5}, "job type 'work': tz, jitter without a schedule"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        declared(**terms)
    assert refused.value.message.startswith(message)


def test_arguments_without_a_default_are_refused() -> None:
    with pytest.raises(UsageError, match="its schedule gives no value for urls"):

        @job("work", schedule="* * * * *")
        async def work(ctx: Context, urls: list[str]) -> None: ...
