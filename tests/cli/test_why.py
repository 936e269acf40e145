import re
from datetime import datetime
from uuid import UUID

from cortex.domain.job import Suspend
from cortex.postgres.database import Database
from cortex.store import jobs, pods, tasks
from tests.support.command_line import Cortex
from tests.support.life import CHANCE, Life


def a_living_pod(life: Life) -> UUID:
    """A pod whose lock is held for as long as the test's own connection."""

    async def enter(db: Database) -> None:
        await db.fetch("pods.lock", pod.lock_key, None)
        await pods.register(db, pod)

    pod = pods.Pod(
        id=CHANCE.new_id(),
        lock_key=CHANCE.rng.getrandbits(62),
        name="pod-7",
        version="1.0",
        job_types=("digest",),
        slots=10,
    )
    life.call(enter)
    return pod.id


def a_job_in_retry(life: Life, *, error: str = "overloaded") -> UUID:
    pod = a_living_pod(life)
    job_id = life.job()
    (claim,) = life.call(tasks.claim, pod_id=pod, types=["digest"], limit=1, config_id=1)
    ending = Suspend(
        lease=claim.lease,
        delay_s=3600.0,
        is_counted=True,
        error=error,
        error_class="TRANSIENT_APP",
    )
    life.call(tasks.suspend, pod_id=pod, operations=[ending])
    return job_id


def test_why_prints_a_sentence_and_its_ways_out(cortex: Cortex, life: Life) -> None:
    job_id = str(a_job_in_retry(life, error="\x1b[31moverloaded"))
    ended = cortex("why", job_id[-6:])
    assert ended.code == 0
    sentence, way_out = ended.out.splitlines()
    assert sentence.startswith(
        f"job …{job_id[-6:]} (digest): it waits for its retry 1 of 3, since "
    )
    assert "TRANSIENT_APP: ⟦U+001B⟧[31moverloaded · for " in sentence
    assert re.search(r" · expected in 59m \d\ds \(at \d{4}-\d\d-\d\dT[\d:.]+Z\)$", sentence)
    assert way_out == f"  cortex jobs retry {job_id}"


def test_why_prints_local_times_on_a_terminal(cortex: Cortex, life: Life) -> None:
    job_id = str(a_job_in_retry(life))
    terminal = cortex.on_terminal("why", job_id, columns=200, env={"TZ": "Europe/Berlin"})
    assert terminal.end() == 0
    assert re.search(r" · expected in 59m \d\ds \(at [\d:.]+ CES?T\)", terminal.text)


def test_machines_read_the_cause_and_the_facts(cortex: Cortex, life: Life) -> None:
    job_id = str(a_job_in_retry(life))
    output = cortex("why", job_id, "--json").document
    assert output["job"] == job_id
    assert output["cause"] == "app_retry"
    assert output["sentence"].startswith("it waits for its retry 1 of 3")
    assert output["ways_out"] == [f"cortex jobs retry {job_id}"]
    assert output["facts"]["status"] == "RETRY"
    assert output["facts"]["fleet"]["knowing_count"] == 1
    assert output["facts"]["task"] is None
    left = datetime.fromisoformat(output["expected_at"]) - datetime.fromisoformat(
        output["facts"]["now"]
    )
    assert 3500 < left.total_seconds() <= 3600
    assert cortex("why", job_id, "-o", "name").out == "app_retry\n"


def test_why_explains_due_and_ended_jobs(cortex: Cortex, life: Life) -> None:
    waiting = str(life.job())
    out = cortex("why", waiting).out
    assert f"job …{waiting[-6:]} (digest): no pod is there to run it\n  cortex up\n" == out
    a_living_pod(life)
    assert "it is due: 1 pod with 10 free slots can take it" in cortex("why", waiting).out
    life.call(jobs.cancel, UUID(waiting), by="ana", reason="enough")
    assert "it was cancelled by ana: enough · for " in cortex("why", waiting).out


def test_an_unknown_job_is_not_found(cortex: Cortex) -> None:
    ended = cortex("why", "01a1b2c3-0000-7000-8000-000000000000")
    assert ended.code == 3
    assert "does not exist" in ended.err


def test_a_sentence_has_no_columns(cortex: Cortex, life: Life) -> None:
    ended = cortex("why", str(life.job()), "--columns", "cause")
    assert ended.code == 2
    assert "it has no columns" in ended.err


def test_job_without_credit_shows_the_bill_and_its_way_out(cortex: Cortex, life: Life) -> None:
    pod = a_living_pod(life)
    job_id = str(life.job())
    (claim,) = life.call(tasks.claim, pod_id=pod, types=["digest"], limit=1, config_id=1)
    ending = Suspend(
        lease=claim.lease,
        delay_s=None,
        is_counted=False,
        waiting_on="person:llm:claude",
        error="402 billing_error: \x1b[31myour balance is too low",
        error_class="BUDGET",
    )
    life.call(tasks.suspend, pod_id=pod, operations=[ending])
    output = "llm:claude has no credit: 402 billing_error: ⟦U+001B⟧[31myour balance is too low; "
    why = cortex("why", job_id)
    assert output in why.out
    assert f"  cortex jobs retry {job_id}" in why.out
    way_out = f"once that is fixed: cortex jobs retry …{job_id[-6:]}"
    assert output + way_out in cortex("jobs", "show", job_id).out
    assert output + way_out in cortex("jobs", "ls").out
