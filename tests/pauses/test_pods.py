"""Rules and pauses as pods declare and keep them."""

from cortex.domain.queueing.pauses import Pausable
from cortex.postgres.database import Profile
from cortex.store import pauses
from tests.e2e.conftest import database, pods
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, job_row, submit, until_status
from tests.support.servers.kept_sessions import kept_session

__all__ = ["database", "pods"]

APP = "tests.support.apps.ruled_app"


def test_a_pod_declares_rules_and_starts_nothing_that_is_paused(pods: Pods) -> None:
    pods.start("--app", APP)
    target = Pausable.parse("type:export")
    with kept_session(Profile(dsn=pods.dsn)) as call:
        call(pauses.pause, target, by="ana", reason="not yet")
        first = submit(pods.dsn, "export", {"customer": 7})
        assert submit(pods.dsn, "export", {"customer": 7}) == first
        prices = [submit(pods.dsn, "reindex", {"product": "a", "price": n}) for n in (1, 2)]
        assert prices[0] == prices[1]
        assert until_status(pods.dsn, prices[0], "COMPLETED")["result"] == 2
        assert job_row(pods.dsn, first)["status"] == "PENDING", "a later job has run meanwhile"
        call(pauses.resume, target, by="ana")
    assert until_status(pods.dsn, first, "COMPLETED")["result"] == 7


def test_a_pod_killed_while_it_sets_tasks_aside_leaves_none_stuck(pods: Pods) -> None:
    with kept_session(Profile(dsn=pods.dsn)) as call:
        ids = [submit(pods.dsn, "export", {"customer": 0}, tenant="acme")]
        target = Pausable.parse("tenant:acme")
        call(pauses.pause, target, by="ana", reason="not yet")
        ids += [submit(pods.dsn, "export", {"customer": n}, tenant="acme") for n in range(1, 6)]
        first = pods.start("--app", APP, crash_at="after_line:1")
        first.exit_code()
        states = {row["status"] for row in (job_row(pods.dsn, each) for each in ids)}
        assert states == {"PENDING"}
        pods.start("--app", APP)
        call(pauses.resume, target, by="ana")
    for each in ids:
        until_status(pods.dsn, each, "COMPLETED")
    assert_one_truth(pods.dsn)
