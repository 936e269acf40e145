"""The sign-off of a pod that leaves."""

import pytest
import trio

from cortex.domain.errors import RejectedError, UnavailableError
from cortex.runtime.liveness.drain import sign_off
from tests.support.records.rows import seeded_random


class Goodbye:
    """Fails a few times."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.said_count = 0

    async def __call__(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._errors:
            raise self._errors.pop(0)
        self.said_count += 1


async def test_a_pod_that_may_own_jobs_still_asks_until_the_database_is_back(
    autojump_clock: object,
) -> None:
    say = Goodbye(*[UnavailableError("away")] * 5)
    await sign_off(say, may_owe=True, rng=seeded_random())
    assert say.said_count == 1


@pytest.mark.parametrize(
    "may_owe, error", [(False, UnavailableError("away")), (True, RejectedError("no"))]
)
async def test_other_pods_sign_off_at_once(may_owe: bool, error: Exception) -> None:
    say = Goodbye(error)
    await sign_off(say, may_owe=may_owe, rng=seeded_random())
    assert say.said_count == 0


async def test_sign_off_ends_at_its_deadline(autojump_clock: object) -> None:
    say = Goodbye(*[UnavailableError("away")] * 1000)
    with trio.move_on_after(5) as phase:
        await sign_off(say, may_owe=True, rng=seeded_random())
    assert phase.cancelled_caught
