"""Pauses: nothing that is paused starts, what runs goes on, and the line is not read in vain."""

from uuid import UUID

import pytest

from cortex.domain.errors import NotFoundError, UsageError
from cortex.domain.job import Submission
from cortex.domain.queueing.pauses import Pausable
from cortex.store import jobs, pauses
from tests.support.life import Life
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.postgres import sql

TYPE = "digest"
WHO = {"by": "ana", "reason": "errors since noon"}
BACKLOG = 3_000


def pod_of(life: Life) -> UUID:
    life.type(TYPE)
    return life.pod("pod-1", TYPE)


def claimed(life: Life, pod: UUID) -> list[UUID]:
    return [each.lease.job_id for each in life.claims(pod, TYPE)]


def held_by(job_id: UUID, kind: str) -> Pausable:
    named = {"all": "all", "type": f"type:{TYPE}", "tenant": "tenant:acme", "job": f"job:{job_id}"}
    return Pausable.parse({**named, "queue": "queue:default"}[kind])


@pytest.mark.parametrize("kind", ["all", "type", "tenant", "queue", "job"])
def test_a_pause_starts_nothing_until_it_is_resumed(clean: Life, kind: str) -> None:
    pod = pod_of(clean)
    before = clean.job(tenant="acme")
    target = held_by(before, kind)
    assert clean.call(pauses.pause, target, **WHO)
    assert not clean.call(pauses.pause, target, **WHO), "once"
    assert claimed(clean, pod) == []
    (row,) = clean.call(pauses.page)
    assert (row.target, row.paused_by, row.reason) == (target, "ana", "errors since noon")
    later = [] if kind == "job" else [clean.job(tenant="acme")]
    assert claimed(clean, pod) == [], "also what came after"
    assert clean.call(pauses.resume, target, by="ben")
    assert not clean.call(pauses.resume, target, by="ben"), "once"
    assert claimed(clean, pod) == [before, *later]
    facts = "SELECT subtype, data->>'by' AS by FROM cortex.fact ORDER BY id DESC LIMIT 2"
    assert [(r["subtype"], r["by"]) for r in clean.sql(facts)] == [
        (f"{kind}_resumed", "ben"),
        (f"{kind}_paused", "ana"),
    ]


@pytest.mark.parametrize("kind", ["tenant", "job"])
def test_others_start_while_a_tenant_or_job_is_paused(clean: Life, kind: str) -> None:
    pod = pod_of(clean)
    paused = clean.job(tenant="acme")
    other = clean.job(tenant="beta")
    clean.call(pauses.pause, held_by(paused, kind), **WHO)
    assert claimed(clean, pod) == [other]


@pytest.mark.parametrize("kind", ["all", "type", "tenant", "queue", "job"])
def test_a_running_job_ends_its_attempt_and_is_not_tried_again(clean: Life, kind: str) -> None:
    pod = pod_of(clean)
    job_id = clean.job(tenant="acme")
    claim = clean.claim(pod, TYPE)
    target = held_by(job_id, kind)
    clean.call(pauses.pause, target, **WHO)
    assert job_row(clean.dsn, job_id)["status"] == "RUNNING"
    clean.release(pod, claim, "handed_back")
    assert claimed(clean, pod) == []
    clean.call(pauses.resume, target, by="ben")
    assert claimed(clean, pod) == [job_id]


def test_the_pause_of_a_job_ends_with_the_job(clean: Life) -> None:
    job_id = clean.job(tenant="acme")
    clean.call(pauses.pause, held_by(job_id, "job"), **WHO)
    clean.sql(
        "UPDATE cortex.job_record SET status = 'CANCELLED', worker_job_id = NULL WHERE id = $1",
        job_id,
    )
    assert clean.call(pauses.page) == []
    clean.call(pauses.unpark)
    assert clean.sql("SELECT FROM cortex_worker.pause") == []
    (fact,) = clean.sql("SELECT subtype, tenant, data FROM cortex.fact ORDER BY id DESC LIMIT 1")
    assert (fact["subtype"], fact["tenant"]) == ("job_resumed", "acme")
    assert '"reason": "the job is CANCELLED"' in str(fact["data"])


def test_a_claim_does_not_read_the_backlog_of_a_paused_tenant(clean: Life) -> None:
    pod = pod_of(clean)
    batch = [Submission(id=new_id(), type=TYPE, tenant="acme") for _ in range(BACKLOG)]
    clean.call(jobs.submit_all, batch)
    other = clean.job(tenant="beta")
    clean.call(pauses.pause, Pausable.parse("tenant:acme"), **WHO)
    states = "SELECT state::text, count(*) FROM cortex_worker.task GROUP BY 1 ORDER BY 1"
    assert [tuple(row) for row in clean.sql(states)] == [("PAUSED", BACKLOG), ("READY", 1)]
    assert claimed(clean, pod) == [other]
    assert clean.call(pauses.page)[0].held == BACKLOG
    clean.call(pauses.resume, Pausable.parse("tenant:acme"), by="ben")
    assert [tuple(row) for row in clean.sql(states)] == [("LOCKED", 1), ("READY", BACKLOG)]
    assert claimed(clean, pod) == [each.id for each in batch[:10]], "in their order"


def test_a_task_under_two_pauses_waits_for_both(clean: Life) -> None:
    pod = pod_of(clean)
    job_id = clean.job(tenant="acme")
    both = [Pausable.parse("tenant:acme"), Pausable.parse(f"job:{job_id}")]
    for each in both:
        clean.call(pauses.pause, each, **WHO)
    clean.call(pauses.resume, both[0], by="ben")
    assert claimed(clean, pod) == []
    clean.call(pauses.park)
    clean.call(pauses.resume, both[1], by="ben")
    assert claimed(clean, pod) == [job_id]


def test_a_paused_head_lets_the_next_of_its_queue_go(clean: Life) -> None:
    pod = pod_of(clean)
    head = clean.job(tenant="acme", queue_name="mail")
    after = clean.job(tenant="beta", queue_name="mail")
    clean.call(pauses.pause, Pausable.parse("tenant:acme"), **WHO)
    for _ in range(2):  # the head becomes ready, and is set aside
        assert claimed(clean, pod) in ([], [after])
        clean.call(pauses.park)
    assert job_row(clean.dsn, after)["status"] == "RUNNING"
    assert job_row(clean.dsn, head)["task_state"] == "PAUSED"


def test_a_paused_job_can_be_cancelled(clean: Life) -> None:
    job_id = clean.job(tenant="acme")
    clean.call(pauses.pause, Pausable.parse(f"job:{job_id}"), **WHO)
    clean.call(jobs.cancel, job_id, by="ana", reason="never mind")
    assert job_row(clean.dsn, job_id)["status"] == "CANCELLED"


def test_a_tenant_reads_only_its_own_pauses(clean: Life) -> None:
    mine, other = clean.job(tenant="acme"), clean.job(tenant="beta")
    targets = ["all", "tenant:acme", "tenant:beta", f"job:{mine}", f"job:{other}"]
    for each in targets:
        clean.call(pauses.pause, Pausable.parse(each), **WHO)
    shown = {str(each.target) for each in clean.call(pauses.page, tenant="acme")}
    assert shown == {"tenant:acme", f"job:{mine}"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("type:no_such", "no pod has had a job type 'no_such'"),
        ("tenant:nobody", "no job or cap is of tenant 'nobody'"),
        (f"job:{UUID(int=0)}", f"job {UUID(int=0)} does not exist, or has ended"),
    ],
)
def test_a_pause_of_what_does_not_exist_is_refused(clean: Life, text: str, message: str) -> None:
    with pytest.raises(NotFoundError) as error:
        clean.call(pauses.pause, Pausable.parse(text), **WHO)
    assert error.value.message == message
    assert clean.call(pauses.page) == []


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "'' is nothing to pause"),
        ("all:x", "'all:x' is nothing to pause"),
        ("type", "'type' is nothing to pause"),
        ("pod:vm", "'pod:vm' is nothing to pause"),
        ("job:7", "'7' is not the id of a job"),
        ("tenant:" + "x" * 101, "is not a name of 1 to 100 characters"),
        ("queue:", "queue '' is not a name of 1 to 100 characters"),
    ],
)
def test_a_target_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Pausable.parse(text)
    assert message in error.value.message


def test_a_task_that_waits_long_rises_by_one_priority_in_use(clean: Life) -> None:
    pod_of(clean)
    low, middle = (clean.job(priority=each) for each in (50, 5))
    move_clock(clean.dsn, 700)
    high = clean.job(priority=-3)
    assert clean.call(pauses.age, limit=100) == 2
    assert clean.call(pauses.age, limit=100) == 0, "another pod has just done it"

    def priorities() -> list[int]:
        return [_priority(clean, each) for each in (low, middle, high)]

    assert priorities() == [5, -3, -3]
    assert job_row(clean.dsn, low)["priority"] == 50, "the job keeps its own"
    move_clock(clean.dsn, 770)
    clean.call(pauses.age, limit=100)
    assert priorities() == [-3, -3, -3]


def _priority(life: Life, job_id: UUID) -> int:
    query = "SELECT priority FROM cortex_worker.task WHERE job_id = $1"
    priority: int = sql(life.dsn, query, job_id)[0]["priority"]
    return priority


def test_tasks_of_one_priority_do_not_age(clean: Life) -> None:
    clean.job(priority=5)
    move_clock(clean.dsn, 700)
    assert clean.call(pauses.age, limit=100) == 0


def test_a_task_is_not_starved_by_deadlines(clean: Life) -> None:
    pod = pod_of(clean)
    plain = clean.job()
    move_clock(clean.dsn, 700)
    (now,) = clean.sql("SELECT cortex.now() + interval '1 second' AS soon")
    for _ in range(3):
        clean.job(due_by=now["soon"])
    clean.call(pauses.age, limit=100)
    assert clean.claim(pod, TYPE).lease.job_id == plain
