import getpass
import json
from uuid import UUID

from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Suspend
from cortex.store import breakers, tasks
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.pods import Pods


def in_retry(life: Life, *, waiting_on: str | None = None) -> str:
    pod = life.pod()
    job_id = life.job()
    (claim,) = life.call(tasks.claim, pod_id=pod, types=["digest"], limit=1, config_id=1)
    ending = Suspend(
        lease=claim.lease,
        delay_s=3600.0,
        is_counted=True,
        error="overloaded",
        waiting_on=waiting_on,
    )
    life.call(tasks.suspend, pod_id=pod, operations=[ending])
    return str(job_id)


def let_go(life: Life) -> list[tuple[str, str, str]]:
    """Job, who and why of each recorded retry, in order."""
    rows = life.sql(
        "SELECT job_id, data FROM cortex.fact WHERE subtype = 'retried_now' ORDER BY id"
    )
    output = [(str(row["job_id"]), json.loads(row["data"])) for row in rows]
    return [(job_id, data["by"], data["reason"]) for job_id, data in output]


def test_retry_releases_a_job_at_once_and_records_the_person(cortex: Cortex, life: Life) -> None:
    job_id = in_retry(life)
    ended = cortex("jobs", "retry", job_id[-6:], "--reason", "it is back", "--as", "ana")
    assert (ended.code, ended.err) == (0, "")
    assert "tries again now" in ended.out
    assert let_go(life) == [(job_id, me("ana"), "it is back")]
    (task,) = life.sql("SELECT job_id, state FROM cortex_worker.task")
    assert (task["job_id"], task["state"]) == (UUID(job_id), "READY")


def test_several_jobs_are_released_despite_one_failure(cortex: Cortex, life: Life) -> None:
    failed, first, last = str(life.failed()), in_retry(life), in_retry(life)
    assert cortex("jobs", "retry", failed, "--yes").code == 0
    ended = cortex("jobs", "retry", last, failed, first, first[-6:], "--yes", "--json")
    assert ended.code == 5
    assert ended.document["jobs"] == [
        {"id": last, "status": "RETRY", "retried_as": None, "error": None},
        {"id": failed, "status": None, "retried_as": None, "error": "conflict"},
        {"id": first, "status": "RETRY", "retried_as": None, "error": None},
    ]
    assert f"job {failed} was retried by {getpass.getuser()}" in ended.error["message"]
    assert {job for job, _, _ in let_go(life)} == {first, last}
    assert {by for _, by, _ in let_go(life)} == {getpass.getuser()}


def test_retry_continues_a_failed_job_once(cortex: Cortex, life: Life) -> None:
    failed = str(life.failed())
    refused = cortex("jobs", "retry", failed)
    assert refused.code == 2
    assert "a new job goes on from its last checkpoint" in refused.err
    given = ("jobs", "retry", failed, "--yes", "--idempotency-key", "k", "--columns", "retried_as")
    first, second = cortex(*given, "--json"), cortex(*given, "--json")
    assert first.document["jobs"] == second.document["jobs"]
    (output,) = first.document["jobs"]
    (heir,) = life.sql("SELECT id, status FROM cortex.job WHERE origin_id = $1", UUID(failed))
    assert (output["retried_as"], heir["status"]) == (str(heir["id"]), "PENDING")
    again = cortex("jobs", "retry", failed, "--yes")
    assert again.code == 5
    assert "was retried by" in again.err


def test_failed_jobs_are_retried_by_a_filter_that_names_them(
    cortex: Cortex, life: Life, pods: Pods
) -> None:
    pods.start()
    failed = [life.failed(), life.failed()]
    in_retry(life)
    dry = cortex("jobs", "retry", "--filter", "status:fail,retry", "--dry-run")
    assert "3 would try again now, 2 of them in new jobs" in dry.out
    ended = cortex("jobs", "retry", "--filter", "status:fail,retry", "--yes")
    assert "1 try again now, 2 go on in new jobs" in ended.out
    rows = life.sql("SELECT origin_id FROM cortex.job WHERE origin_id IS NOT NULL")
    assert {row["origin_id"] for row in rows} == {*failed}
    again = cortex("jobs", "retry", "--filter", "status:fail", "--dry-run")
    assert "2 retried or discarded before" in again.out


def test_retry_under_a_key_happens_once(cortex: Cortex, life: Life) -> None:
    job_id = in_retry(life)
    given = ("jobs", "retry", job_id, "--reason", "again", "--idempotency-key", "k-1", "--json")
    first, second = cortex(*given), cortex(*given)
    assert (first.code, second.code) == (0, 0)
    assert second.document["jobs"] == first.document["jobs"]
    assert len(let_go(life)) == 1
    assert cortex("jobs", "retry", job_id).code == 5


def test_an_unknown_job_is_not_found(cortex: Cortex) -> None:
    assert cortex("jobs", "retry", "01a1b2c3-0000-7000-8000-000000000000").code == 3


def test_retry_warns_of_an_open_breaker(cortex: Cortex, life: Life) -> None:
    failure = Failure(
        cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy", retry_after_s=600.0
    )
    for _ in range(3):
        life.call(breakers.failed, "llm:m", failure=failure, requests=1, probe=None)
    jobs = [in_retry(life, waiting_on="llm:m") for _ in range(3)]
    first = cortex("jobs", "retry", jobs[0])
    assert first.code == 0
    assert "breaker llm:m decides about their calls, and is open for " in first.err
    assert " (until " in first.err
    assert "cortex breakers close llm:m --reason TEXT" in first.err
    life.call(breakers.force_open, "llm:m", by="ana", reason="bills")
    held = cortex("jobs", "retry", jobs[1])
    assert "is open until it is closed" in held.err
    life.call(breakers.close, "llm:m", by="ana", reason="paid")
    assert cortex("jobs", "retry", jobs[2]).err == ""


def test_reason_and_name_are_bounded(cortex_nowhere: Cortex) -> None:
    for option, characters in (("--reason", 501), ("--as", 81)):
        ended = cortex_nowhere("jobs", "retry", "abcdef", option, "x" * characters)
        assert ended.code == 2
        assert f"'{option}': {characters} characters are more than {characters - 1}" in ended.err
