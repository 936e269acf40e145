"""How a loop waits out an outage: one line, longer and longer pauses, all random."""

from random import Random

import pytest
import trio
import trio.testing
from structlog import get_logger
from structlog.testing import capture_logs

from cortex.actors.backoff import (
    LEAST,
    OUTAGE,
    SHORTAGE,
    LoopBackoff,
    retry_while_unavailable,
)
from cortex.domain.backoff import Backoff
from cortex.domain.errors import RejectedError, Trouble, UnavailableError

LOG = get_logger("test")
GONE = UnavailableError("gone", trouble=Trouble.UNREACHABLE)
FULL = UnavailableError("full", trouble=Trouble.DISK_FULL)


@pytest.mark.parametrize(
    "error, backoff",
    [(GONE, OUTAGE), (FULL, SHORTAGE)],
    ids=["gone", "full"],
)
def test_pauses_double_up_to_a_bound_and_differ(error: UnavailableError, backoff: Backoff) -> None:
    runs = []
    for seed in range(20):
        loop = LoopBackoff(rng=Random(seed))
        with capture_logs() as lines:
            runs.append([loop.failed(LOG, "not done", error, batch=3) for _ in range(20)])
        assert [line["log_level"] for line in lines] == ["warning"] + ["debug"] * 19
        assert (lines[0]["event"], lines[0]["error"], lines[0]["batch"]) == (
            "not done",
            error.message,
            3,
        )
    for number, pauses in enumerate(zip(*runs, strict=True)):
        longest_s = min(backoff.cap_s, backoff.base_s * 2**number)
        assert LEAST * longest_s <= min(pauses)
        assert max(pauses) <= longest_s
        assert max(pauses) - min(pauses) > longest_s / 2, "pods do not come in step"


def test_success_resets_the_backoff() -> None:
    backoff = LoopBackoff(rng=Random(1))
    for _ in range(10):
        backoff.failed(LOG, "not done", GONE)
    backoff.succeeded()
    with capture_logs() as lines:
        assert backoff.failed(LOG, "not done", GONE) <= OUTAGE.base_s
    assert lines[0]["log_level"] == "warning"


async def test_a_job_asks_until_there_is_an_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked <= 30:
            raise FULL if asked % 2 else GONE
        return asked

    assert await retry_while_unavailable(ask, log=LOG, event="not read", rng=Random(2)) == 31
    assert trio.current_time() < 30 * SHORTAGE.cap_s

    async def refuse() -> int:
        raise RejectedError("no")

    with pytest.raises(RejectedError):
        await retry_while_unavailable(refuse, log=LOG, event="not read", rng=Random(2))
