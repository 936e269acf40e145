"""Jobs that begin although they are paused, or that break the rule of their type about submits."""

import pytest

from chaos.checkers import i39_pauses, i40_submit_rules
from chaos.checkers.verdict import Checker, Result
from chaos.workloads.rules import Rule
from tests.support.evidence import Run, at, uuid
from tests.support.healthy_run import healthy_run
from tests.support.sick import Sicknesses, Spoil, assert_seen

sick = Sicknesses()
CALM = uuid("calm")
"""A job that began at 45.1 s."""


@sick(i39_pauses.check, f"attempt 1 of job {CALM} began 1.60 s after all was paused")
def everything_is_paused(run: Run) -> None:
    run.pause("all", "", 43.5, 46.0)


@sick(i39_pauses.check, f"job {CALM} began 1.60 s after type:chaos_program was paused")
def its_type_is_paused(run: Run) -> None:
    run.pause("type", "chaos_program", 43.5, 46.0)


@sick(i39_pauses.check, f"job {CALM} began 1.60 s after tenant:default was paused")
def its_tenant_is_paused(run: Run) -> None:
    run.pause("tenant", "default", 43.5, 46.0)


@sick(i39_pauses.check, f"job {CALM} began 1.60 s after queue:default was paused")
def its_queue_is_paused(run: Run) -> None:
    run.pause("queue", "", 43.5, 46.0)


@sick(i39_pauses.check, f"job {CALM} began 1.60 s after job:{CALM} was paused")
def itself_is_paused(run: Run) -> None:
    run.pause("job", str(CALM), 43.5, 46.0)


@sick(i39_pauses.check, "tenant:west is paused for ever")
def nothing_resumes_it(run: Run) -> None:
    run.pause("tenant", "west", 43.5, None)


@sick(i39_pauses.check, "the pause of type:ruled_queue was acknowledged and is lost")
def a_pause_is_lost(run: Run) -> None:
    run.pauses.clear()


@sick(i40_submit_rules.check, f"job {uuid('later')} began before {uuid('earlier')} had ended")
def a_singleton_does_not_wait_for_the_end(run: Run) -> None:
    next(claim for claim in run.claims if claim["job_id"] == uuid("later"))["at"] = at(25.9)


@sick(i40_submit_rules.check, f"job {uuid('two')} was submitted before {uuid('one')} had ended")
def a_key_has_two_jobs(run: Run) -> None:
    run.ruled("one", Rule.RETURN, born=44.0, begun=44.1, ended=44.5)
    run.ruled("two", Rule.RETURN, born=44.4, begun=44.6, ended=44.7)


@sick(i40_submit_rules.check, f"job {uuid('two')} was submitted while {uuid('one')} waited")
def a_job_is_not_replaced(run: Run) -> None:
    run.ruled("one", Rule.REPLACE, born=44.0, begun=44.2, ended=44.5)
    run.ruled("two", Rule.REPLACE, born=44.1, begun=44.6, ended=44.7)


@sick(i40_submit_rules.check, f"job {uuid('two')} came 0.900 s after {uuid('one')}")
def a_throttle_lets_two_through(run: Run) -> None:
    run.ruled("one", Rule.THROTTLE, born=44.0, begun=44.2, ended=44.5)
    run.ruled("two", Rule.THROTTLE, born=44.9, begun=45.0, ended=45.1)


@sick(i40_submit_rules.check, f"got job {uuid('one')}, which had ended before")
def a_submit_gets_a_job_that_has_ended(run: Run) -> None:
    run.ruled("one", Rule.RETURN, born=44.0, begun=44.2, ended=44.5)
    labels = {"number": 99, "type": Rule.RETURN.job_type, "customer": 1}
    run.tell(45.1, "customer-1", "ruled", "invoke", **labels, way="sql")
    run.tell(45.2, "customer-1", "ruled", "ok", **labels, jobs=[str(uuid("one"))])


@sick(i40_submit_rules.check, f"got job {CALM}, which is not one of its key")
def a_submit_gets_the_job_of_another_key(run: Run) -> None:
    labels = {"number": 99, "type": Rule.RETURN.job_type, "customer": 1}
    run.tell(45.1, "customer-1", "ruled", "ok", **labels, jobs=[str(CALM)])


@pytest.mark.parametrize("check, spoil, output", sick.all)
def test_a_broken_pause_or_rule_is_seen(check: Checker, spoil: Spoil, output: str) -> None:
    assert_seen(check, spoil, output)


@pytest.mark.parametrize(
    "kind, name",
    [("type", "other"), ("tenant", "west"), ("queue", "mail"), ("job", str(uuid("x")))],
)
def test_jobs_that_are_not_paused_may_begin(kind: str, name: str) -> None:
    run = healthy_run()
    run.pause(kind, name, 43.5, 46.0)
    assert i39_pauses.check(run.evidence()).result is Result.VALID


def test_jobs_of_two_keys_and_those_replaced_in_their_own_batch_are_no_conflict() -> None:
    run = healthy_run()
    run.ruled("one", Rule.REPLACE, born=44.0, begun=44.5, ended=44.6)
    run.ruled("other", Rule.REPLACE, born=44.1, begun=44.5, ended=44.6, customer=2)
    run.ruled("replaced", Rule.REPLACE, born=44.2, begun=44.2, ended=44.2)
    assert i40_submit_rules.check(run.evidence()).result is Result.VALID
