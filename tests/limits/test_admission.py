"""Limits of job types: never exceeded, fair between keys, places neither freed early nor kept."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from cortex.domain.errors import InvalidValueError
from cortex.domain.job import Claim
from cortex.domain.job_limits import Concurrency, Rate
from cortex.domain.queueing.pauses import Pausable
from cortex.store import jobs, limits, pauses, queues, tasks
from cortex.store.tasks import has_work
from tests.limits.conftest import TYPE, Stage
from tests.sql.test_approval_plans import touched
from tests.support.at_once import at_once
from tests.support.records.factories import a_submission
from tests.support.records.rows import move_clock, new_id, seeded_random
from tests.support.servers.postgres import sql

PER_TENANT = Concurrency(2, key="tenant")
ANA, LI = {"customer": "ana"}, {"customer": "li"}


def customers(claims: list[Claim]) -> list[str]:
    return [json.loads(each.payload)["customer"] for each in claims]


def test_jobs_wait_until_their_key_has_room(stage: Stage) -> None:
    stage.declare(PER_TENANT)
    stage.submit_many(5, {}, tenant="acme")
    stage.submit_many(1, {}, tenant="zoo")
    assert stage.states() == {"HELD": 6}
    assert stage.call(has_work)
    claims = stage.claim()
    assert Counter(each.tenant for each in claims) == {"acme": 2, "zoo": 1}
    assert stage.claim() == []
    stage.finish(next(each for each in claims if each.tenant == "acme"))
    (more,) = stage.claim()
    assert more.tenant == "acme"
    assert stage.holds() == {"acme": 2, "zoo": 1}


def test_other_types_are_not_held(stage: Stage) -> None:
    stage.declare(PER_TENANT)
    stage.submit(type="other")
    assert stage.states() == {"READY": 1}
    rows = sql(stage.dsn, "SELECT is_admitted, limit_keys FROM cortex_worker.task")
    assert tuple(rows[0]) == (None, None)


def test_places_last_over_attempts_and_end_with_the_task(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    stage.submit_many(2, {})
    (first,) = stage.claim()
    stage.release(first)
    (again,) = stage.claim()
    assert again.lease.job_id == first.lease.job_id
    stage.release(again, outcome="failed", delay_s=60.0)
    assert stage.claim() == []
    assert sum(stage.holds().values()) == 1
    stage.call(jobs.cancel, first.lease.job_id, by="ana", reason="a test")
    assert stage.holds() == {}
    (second,) = stage.claim()
    assert second.lease.job_id != first.lease.job_id
    stage.suspend(second, delay_s=None)
    assert stage.holds() == {}


def test_woken_job_goes_before_the_others_of_its_key(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="customer"), Rate(2, per="day"))
    stage.submit_many(3, ANA, priority=-5)
    (first,) = stage.claim()
    stage.suspend(first)
    (other,) = stage.claim()
    assert other.lease.job_id != first.lease.job_id
    stage.resume()
    assert stage.claim() == []
    stage.finish(other)
    # It was counted when it began: the rate, which is used up, does not stop it.
    (woken,) = stage.claim()
    assert (woken.lease.job_id, woken.lease.attempt) == (first.lease.job_id, 2)
    stage.finish(woken)
    assert stage.claim() == []


def test_deadlines_come_first_within_a_priority(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    last = stage.submit(priority=1)
    plain = stage.submit()
    soon = stage.submit(due_by=sql(stage.dsn, "SELECT now() + interval '1 day' AS at")[0]["at"])
    served = []
    for _ in range(3):
        (claim,) = stage.claim()
        served.append(claim.lease.job_id)
        stage.finish(claim)
    assert served == [soon, plain, last]


def test_keys_take_turns(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    stage.submit_many(40, ANA | {"n": 1}, tenant="big")
    stage.declare(Concurrency(1, key="tenant"), Concurrency(1))
    for name in ("small", "tiny"):
        stage.submit_many(3, ANA, tenant=name)
    served = []
    for _ in range(12):
        (claim,) = stage.claim()
        served.append(claim.tenant)
        stage.finish(claim)
    assert Counter(served[:9]) == {"big": 3, "small": 3, "tiny": 3}
    assert served[9:] == ["big"] * 3


def test_first_key_takes_turns_whatever_others_its_jobs_have(stage: Stage) -> None:
    stage.declare(Concurrency(9, key="tenant"), Concurrency(2, key="customer"), Concurrency(1))
    for number in range(20):
        stage.submit({"customer": f"c{number}"}, tenant="big")
    stage.submit_many(5, ANA, tenant="small")
    served = []
    for _ in range(10):
        (claim,) = stage.claim()
        served.append((claim.tenant, *customers([claim])))
        stage.finish(claim)
    assert Counter(tenant for tenant, _ in served) == {"big": 5, "small": 5}
    # Customers of one tenant take turns among themselves.
    assert len(set(served)) == 6


def test_blocked_key_does_not_stop_others_of_its_turn(stage: Stage) -> None:
    stage.declare(Concurrency(5, key="tenant"), Concurrency(1, key="customer"))
    stage.submit_many(10, ANA)
    stage.submit(LI)
    assert sorted(customers(stage.claim())) == ["ana", "li"]


def test_more_keys_than_one_pass_looks_at_all_get_their_turn(stage: Stage) -> None:
    stage.declare(Concurrency(9, key="tenant"), Concurrency(90))
    each = [a_submission(type=TYPE, tenant=f"t{number}") for number in range(700)]
    stage.call(jobs.submit, each)
    seen: set[str] = set()
    for _ in range(4):
        claims = stage.claim()
        assert len(claims) == 90
        seen |= {claim.tenant for claim in claims}
        stage.finish(*claims)
    assert len(seen) == 360


def test_rates_hold_in_any_span(stage: Stage) -> None:
    stage.declare(Rate(3, per="minute", key="customer"))
    stage.submit_many(9, ANA)
    stage.submit(LI)
    at_s = 0.0
    began: list[float] = []
    while len(began) < 9:
        move_clock(stage.dsn, at_s)
        began += [at_s] * customers(stage.claim()).count("ana")
        at_s += 4.0
        assert at_s < 400
    for start in began:
        assert sum(start <= at < start + 60 for at in began) <= 3
    assert began[-1] <= 2 * 65


def test_pass_says_when_a_rate_has_room(stage: Stage) -> None:
    stage.declare(Rate(1, per="minute"))
    stage.submit_many(2, {})
    assert stage.admit().count == 1
    done = stage.admit()
    assert done.count == 0
    assert done.due_in_s is not None
    assert 58 < done.due_in_s <= 61.1


def test_due_time_and_named_queue_come_before_the_limit(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="customer"))
    stage.submit(ANA, delay_s=60.0)
    stage.submit(LI, queue_name="line")
    stage.submit(LI, queue_name="line")
    assert stage.states() == {"LATER": 1, "QUEUED": 2}
    (first,) = stage.claim()
    assert stage.states() == {"LATER": 1, "QUEUED": 1, "LOCKED": 1}
    move_clock(stage.dsn, 120.0)
    assert customers(stage.claim()) == ["ana"]
    stage.finish(first)
    assert customers(stage.claim()) == ["li"]


def test_strict_queue_goes_on_while_its_job_waits_for_room(stage: Stage) -> None:
    """Places are taken by the job at the head of a queue only: none behind it can block it."""
    stage.declare(Concurrency(1))
    stage.call(queues.make_strict, "line", by="ana", reason="a test")
    first = stage.submit(queue_name="line")
    stage.submit(queue_name="line")
    (begun,) = stage.claim()
    stage.suspend(begun)
    stage.resume()
    (woken,) = stage.claim()
    assert woken.lease.job_id == begun.lease.job_id == first


def test_key_missing_in_the_payload_is_refused_with_its_whole_batch(stage: Stage) -> None:
    stage.declare(Concurrency(5, key="order.region"), Rate(5, per="day", key="agent"))
    fits = '{"order": {"region": "eu"}}'
    for payload in ("{}", '{"order": {"region": null}}', '{"order": {"region": [1]}}'):
        both = [a_submission(type="other"), a_submission(type=TYPE, payload=payload)]
        with pytest.raises(InvalidValueError, match=r"payload\.order\.region of job") as error:
            stage.call(jobs.submit, both)
        assert error.value.message.endswith("limit limited:running:order.region counts by it")
        assert error.value.hint == "add it to the payload"
    with pytest.raises(InvalidValueError, match="must have an agent: limit limited:jobs/day:agent"):
        stage.submit(payload=fits)
    assert sql(stage.dsn, "SELECT count(*) AS n FROM cortex.job_record")[0]["n"] == 0
    for value in ('"eu"', "7", "true"):
        stage.declare(Concurrency(5, key="order.region"))
        stage.submit(payload=f'{{"order": {{"region": {value}}}}}')


def test_paused_tenant_takes_no_place_from_others(stage: Stage) -> None:
    stage.declare(Concurrency(3))
    stage.submit_many(300, {}, tenant="acme")
    stage.submit_many(2, {}, tenant="zoo")
    stage.declare(Concurrency(2, key="tenant"), Concurrency(3))
    acme = Pausable.parse("tenant:acme")
    stage.call(pauses.pause, acme, by="ana", reason="a test")
    assert [each.tenant for each in stage.claim()] == ["zoo", "zoo"]
    stage.call(pauses.resume, acme, by="ana")
    assert [each.tenant for each in stage.claim()] == ["acme"]


def test_raised_limit_lets_go_and_lowered_one_stops_new_jobs(stage: Stage) -> None:
    stage.declare(Concurrency(2))
    stage.submit_many(1_000, {})
    assert len(stage.claim()) == 2
    assert stage.declare(Concurrency(10)) == 1
    claims = stage.claim()
    assert len(claims) == 8
    stage.declare(Concurrency(3))
    assert stage.declare(Concurrency(3)) == 0
    stage.finish(*claims[:7])
    assert stage.claim() == []
    stage.finish(claims[7])
    assert len(stage.claim()) == 1


def test_changed_keys_count_waiting_and_running_jobs(stage: Stage) -> None:
    stage.declare(Concurrency(3, key="tenant"))
    for number in range(120):
        stage.submit({"customer": f"c{number % 2}"}, tenant=f"t{number % 3}")
    before = stage.claim()
    assert len(before) == 9
    stage.declare(Concurrency(6, key="customer"))
    assert stage.holds() == Counter(customers(before))
    after = customers(before + stage.claim())
    assert Counter(after) == {"c0": 6, "c1": 6}


def test_first_limit_of_a_type_holds_its_waiting_jobs(stage: Stage) -> None:
    ids = [stage.submit(ANA) for _ in range(4)]
    stage.submit(ANA, delay_s=60.0)
    stage.submit(queue_name="line")
    (running,) = stage.claim(limit=1)
    stage.declare(Concurrency(2, key="customer"))
    assert running.lease.job_id in ids
    # A payload without the key, from before: such jobs share one.
    assert sorted(json.loads(each.payload).get("customer", "") for each in stage.claim()) == [
        "",
        "ana",
    ]
    assert stage.holds() == {"ana": 2, "": 1}
    assert stage.states() == {"LOCKED": 3, "HELD": 2, "LATER": 1}


def test_removed_limits_let_all_go(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    stage.submit_many(5, {})
    stage.submit(delay_s=60.0)
    (running,) = stage.claim()
    stage.declare()
    assert len(stage.claim()) == 4
    stage.finish(running)
    move_clock(stage.dsn, 120.0)
    assert len(stage.claim()) == 1
    assert stage.holds() == {}
    assert sql(stage.dsn, "SELECT FROM cortex.limited_type") == []


@pytest.mark.parametrize("statistics", ["none yet", "fresh"])
def test_pass_reads_no_more_however_many_jobs_wait(stage: Stage, statistics: str) -> None:
    stage.declare(Concurrency(2, key="customer"))
    stage.submit_many(3_000, ANA)
    stage.submit_many(3_000, LI)
    assert len(stage.claim()) == 4
    if statistics == "fresh":
        sql(stage.dsn, "ANALYZE")
    found = touched(stage.dsn, "SELECT * FROM cortex_worker.admit(500)")
    assert found.rows <= 50


def test_ten_thousand_limited_jobs_are_one_call(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="customer"))
    batch = [
        a_submission(type=TYPE, payload=json.dumps({"customer": f"c{number % 100}"}))
        for number in range(10_000)
    ]
    assert len((stage.call(jobs.submit, batch)).new) == 10_000
    assert len(stage.claim()) == 100


def test_limits_hold_whatever_happens_at_once(stage: Stage) -> None:
    """Random submits, ends, waits, deaths and changes, from several sessions at once."""
    chance = seeded_random()
    stage.declare(Concurrency(3, key="customer"), Concurrency(5))
    names = ["a", "b", "c"]
    running: list[Claim] = []
    ends: tuple[Callable[[Claim], None], ...] = (stage.end, stage.suspend, stage.release)
    for _ in range(12):
        for _ in range(chance.randint(0, 6)):
            stage.submit({"customer": chance.choice(names)})
        at_once(stage.dsn, *[partial(limits.admit, limit=chance.randint(1, 9)) for _ in range(3)])
        running += stage.call(tasks.claim, pod_id=stage.pod_id, types=[TYPE], limit=20)
        held = stage.holds()
        assert held[""] <= 5
        assert max([held[name] for name in names]) <= 3
        assert Counter(customers(running)) == Counter({name: held[name] for name in names})
        chance.shuffle(running)
        for _ in range(chance.randint(0, len(running))):
            claim = running.pop()
            end = ends[chance.randrange(3)]
            end(claim)
        stage.resume()
    _assert_no_place_is_left(stage)


def _assert_no_place_is_left(stage: Stage) -> None:
    left = sql(
        stage.dsn,
        "SELECT job_id FROM cortex_worker.limit_hold h WHERE NOT EXISTS "
        "(SELECT FROM cortex_worker.task t WHERE t.job_id = h.job_id AND t.is_admitted)",
    )
    assert left == []
    lacking = sql(
        stage.dsn,
        "SELECT job_id FROM cortex_worker.task t WHERE t.is_admitted AND NOT EXISTS "
        "(SELECT FROM cortex_worker.limit_hold h WHERE h.job_id = t.job_id)",
    )
    assert lacking == []


def test_task_is_not_ready_before_it_is_let_through(stage: Stage) -> None:
    """The schema itself refuses a statement that would let it through beside its limits."""
    stage.declare(Concurrency(1))
    job_id: UUID = stage.submit()
    with pytest.raises(Exception, match="held_until_admitted"):
        sql(stage.dsn, "UPDATE cortex_worker.task SET state = 'READY' WHERE job_id = $1", job_id)
    assert new_id() != job_id
