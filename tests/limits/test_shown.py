"""What people see of limits: the place in line, the list, and bad declarations."""

from typing import Any

import pytest

from cortex import Concurrency, Rate, job
from cortex.domain.drain import Liveness
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import Wait, wait_of
from cortex.store import jobs, limits, why
from cortex.store.background import housekeeping
from cortex.view import doctor
from cortex.view.doctor import Grade
from cortex.view.why import Cause
from cortex.view.why import why as explained
from cortex.view.why_brief import brief
from tests.limits.conftest import TYPE, Stage
from tests.support.life import Life
from tests.support.records.rows import move_clock
from tests.support.servers.postgres import sql


def test_why_names_the_place_the_key_and_the_limit(stage: Stage) -> None:
    stage.declare(Concurrency(2, key="tenant"))
    stage.submit_many(4, {}, tenant="acme")
    last = stage.submit(tenant="acme", priority=5)
    assert explained(stage.call(why.facts_of, last)).sentence == "no pod is there to run it"
    Life(stage.call, stage.dsn).pod("pod-1", TYPE, liveness=Liveness.HEARTBEAT)
    before = explained(stage.call(why.facts_of, last))
    assert before.sentence == "place 5 of 5: its limits have room, it is about to be let through"
    stage.claim()
    found = explained(stage.call(why.facts_of, last))
    assert found.cause is Cause.LIMIT
    assert found.sentence == (
        f"place 3 of 3 for tenant=acme in limit {TYPE}:running:tenant; 2 of 2 run"
    )
    facts = stage.call(why.facts_of_all, [last])[last]
    assert brief(facts) == (
        f"waits for room for tenant=acme in limit {TYPE}:running:tenant; 2 of 2 run"
    )
    shown = stage.call(jobs.show, last)
    assert wait_of(shown.status, shown.waiting_on) is Wait.LIMIT


def test_why_says_when_a_rate_has_room(stage: Stage) -> None:
    stage.declare(Rate(1, per="hour"))
    stage.submit()
    second = stage.submit()
    stage.claim()
    found = explained(stage.call(why.facts_of, second))
    assert found.sentence == (
        f"place 1 of 1 in limit {TYPE}:jobs/hour; 1 of 1 began in the last hour"
    )
    assert found.expected_at is not None
    now = stage.call(why.facts_of, second).now
    assert 3_500 < (found.expected_at - now).total_seconds() <= 3_660


def test_doctor_names_the_key_that_lets_no_job_through(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="tenant"))
    for tenant in ("busy", "acme", "acme"):
        stage.submit(tenant=tenant)
    holder = next(each for each in stage.claim() if each.tenant == "acme")
    assert doctor.of_limits(stage.call(limits.stuck)).grade is Grade.OK
    move_clock(stage.dsn, 7_260)
    found = doctor.of_limits(stage.call(limits.stuck))
    assert found.grade is Grade.WARN
    assert found.found == (
        f"{TYPE}:running:tenant for tenant=acme has let no job through for 2h 01m: "
        "all its places are held, 1 job waits, the oldest for 2h 01m"
    )
    assert found.fix == (
        f"see what keeps the job that has held its place for longest: "
        f"cortex why {holder.lease.job_id}"
    )
    stage.finish(holder)
    stage.claim()
    assert stage.call(limits.stuck) == []


def test_why_of_a_job_that_waits_for_tokens(stage: Stage) -> None:
    stage.declare(Rate(1, per="hour", unit="tokens"))
    stage.submit()
    (claim,) = stage.claim()
    stage.suspend(claim, delay_s=9.0, waiting_on=f"limit:{TYPE}:tokens/hour")
    found = explained(stage.call(why.facts_of, claim.lease.job_id))
    assert found.cause is Cause.LIMIT
    assert found.sentence == f"it waits for room in limit {TYPE}:tokens/hour"


def test_limits_are_listed_with_their_keys(stage: Stage) -> None:
    stage.declare(
        Concurrency(2, key="tenant"), Rate(9, per="minute"), Rate(5, per="day", unit="tokens")
    )
    stage.submit_many(3, {}, tenant="acme")
    stage.submit_many(1, {}, tenant="zoo")
    stage.claim()
    rows = {row.name: row for row in stage.call(limits.page)}
    assert list(rows) == [f"{TYPE}:jobs/minute", f"{TYPE}:running:tenant", f"{TYPE}:tokens/day"]
    running = rows[f"{TYPE}:running:tenant"]
    assert (running.keys, running.full_keys, running.waiting_jobs) == (2, 1, 1)
    assert (running.busiest_key, running.busiest_used) == ("acme", 2)
    assert (rows[f"{TYPE}:jobs/minute"].busiest_used, rows[f"{TYPE}:tokens/day"].keys) == (3, 0)


def test_housekeeping_deletes_what_no_longer_counts(stage: Stage) -> None:
    stage.declare(Rate(9, per="second"), Concurrency(1, key="customer"), Concurrency(9, key="n"))
    for number in range(3):
        stage.submit({"customer": "ana", "n": number})
    stage.claim()
    stage.call(limits.forget, limit=100)
    assert len(sql(stage.dsn, "SELECT FROM cortex_worker.limit_use")) == 1
    sql(stage.dsn, "DELETE FROM cortex_worker.task WHERE state = 'HELD'")
    move_clock(stage.dsn, 4_000)
    swept = stage.call(housekeeping.sweep, limit=100, after=None, sent_kept_s=1e9, lines_kept_s=1e9)
    assert swept is not None
    assert sql(stage.dsn, "SELECT FROM cortex_worker.limit_use") == []
    assert len(sql(stage.dsn, "SELECT FROM cortex_worker.limit_cursor")) == 1


async def _handler(ctx: object, n: int) -> None: ...


BAD: list[tuple[Any, str]] = [
    (lambda: Concurrency(0), "Concurrency(0): 0 is not a limit"),
    (lambda: Concurrency(-1), "Concurrency(-1): -1 is not a limit"),
    (lambda: Concurrency(float("nan")), "Concurrency(nan): nan is not a limit"),  # type: ignore[arg-type]
    (lambda: Concurrency(bool(1)), "Concurrency(True): True is not a limit"),
    (lambda: Concurrency(10**13), "10000000000000 is not a limit"),
    (lambda: Concurrency(5, key=""), "Concurrency(5): key '' is not tenant"),
    (lambda: Concurrency(5, key="a..b"), "key 'a..b' is not tenant"),
    (lambda: Concurrency(5, key="a\0b"), r"key 'a\x00b' is not tenant"),
    (lambda: Rate(5, per=[]), "per [] is not one of"),  # type: ignore[arg-type]
    (lambda: Rate(5, per="fortnight"), "per 'fortnight' is not one of second, minute, hour, day"),
    (lambda: Rate(5, per="day", unit="euros"), "unit 'euros' is not one of jobs, tokens"),
    (lambda: job("a", limits=[5])(_handler), "'a': 5 is not a limit"),  # type: ignore[list-item]
    (lambda: job("a", limits=Concurrency(5))(_handler), "limits is Concurrency(limit=5"),  # type: ignore[call-overload]
    (
        lambda: job("a", limits=[Concurrency(5, key="n"), Concurrency(6, key="n")])(_handler),
        "two limits of running:n",
    ),
    (
        lambda: job("a", limits=[Concurrency(5, key="costumer.id")])(_handler),
        "'a': limit running:costumer.id names 'costumer', no argument of it",
    ),
]


@pytest.mark.parametrize("make, says", BAD, ids=[says for _, says in BAD])
def test_bad_declaration_is_refused_on_one_line(make: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert says in error.value.message
    assert error.value.hint
    assert "\n" not in error.value.message
