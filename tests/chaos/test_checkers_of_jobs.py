"""Each way in which jobs can be sick, and the checker that must see it: a healthy run, spoilt."""

from datetime import timedelta

import pytest
from attrs import evolve

from chaos.checkers import (
    i01_acknowledged,
    i02_one_end,
    i04_one_owner,
    i05_checkpoints,
    i06_retries,
    i10_whole_commits,
    i14_poison,
    i20_legal_transitions,
    i21_idempotency_keys,
    i24_liveness,
    i30_fit,
    i35_deployments,
    i36_pods_live,
    i37_logs,
)
from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Checker, Result
from chaos.evidence import Row
from tests.support.evidence import Run, at, uuid
from tests.support.healthy_run import a_line, healthy_run
from tests.support.sick import Sicknesses, Spoil, assert_seen

sick = Sicknesses()


@sick(i35_deployments.check, "is FAILED")
def job_fails_because_its_code_changed(run: Run) -> None:
    run.jobs["deployed"].update(status="FAILED", error_message="step 'load' diverged")


@sick(i35_deployments.check, "has made both fetch and load")
def both_releases_make_their_step(run: Run) -> None:
    run.step("deployed", "fetch", 44.25)


@sick(i35_deployments.check, "has acted 2 times")
def both_releases_act(run: Run) -> None:
    run.apply("deployed", "0:idempotent", 44.35)


@sick(i35_deployments.check, "has a dead letter")
def job_that_waited_for_code_has_a_dead_letter(run: Run) -> None:
    run.dead_letters.append({"job_id": uuid("deployed")})


@sick(i01_acknowledged.check, "now missing")
def an_acknowledged_job_is_gone(run: Run) -> None:
    del run.jobs["plain"]


@sick(i01_acknowledged.check, "is still WAITING_FOR_APPROVAL")
def a_job_waits_for_ever(run: Run) -> None:
    run.jobs["decided"].update(status="WAITING_FOR_APPROVAL", waiting_on="approval:1")


@sick(i02_one_end.check, "went on after its end: COMPLETED → FAILED")
def a_job_ends_twice(run: Run) -> None:
    run.move("plain", "FAILED", 5.0)


@sick(i02_one_end.check, "its history has no end")
def an_end_is_not_in_the_history(run: Run) -> None:
    run.transitions = [row for row in run.transitions if row["job_id"] != uuid("plain")]


@sick(i04_one_owner.check, "attempt 1 was claimed after 1")
def two_pods_claim_the_same_attempt(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("plain"))
    run.claims.append({**claim, "at": at(1.2), "previous": 1, "pod_id": uuid("p2.1")})


@sick(i04_one_owner.check, "attempt 1 wrote step '2:pure' after 2 had begun")
def a_paused_owner_writes_after_its_successor(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("plain"))
    run.claims.append({**claim, "at": at(1.65), "previous": 1, "attempt": 2})


@sick(i04_one_owner.check, "attempt 1 wrote step '2:pure' after 2 had begun")
def an_older_attempt_writes_later(run: Run) -> None:
    for step in run.steps:
        if step["job_id"] == uuid("plain") and step["seq"] < 3:
            step["attempt"] = 2


@sick(i04_one_owner.check, "after the job's end")
def a_step_is_written_after_the_end(run: Run) -> None:
    run.step("plain", "3:late", 5.0)


@sick(i04_one_owner.check, "attempts go back in its history")
def an_older_attempt_ends_the_job(run: Run) -> None:
    rows = [row for row in run.transitions if row["job_id"] == uuid("drained")]
    rows[1]["attempt"] = 5


@sick(i04_one_owner.check, "one claim gave pod")
def a_claim_takes_more_than_there_are_slots(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("plain"))
    for number in range(13):
        run.claims.append({**claim, "at": at(60), "job_id": uuid(f"more {number}"), "statement": 5})


@sick(i04_one_owner.check, "its head went from 3 steps to 2")
def an_older_owner_sets_the_head_back(run: Run) -> None:
    run.setbacks.append({"job_id": uuid("plain"), "attempt": 2, "previous": 3, "seq": 2})


@sick(i04_one_owner.check, "kept job")
def a_pod_keeps_a_job_alive_that_another_one_runs(run: Run) -> None:
    stranger = {"job_id": uuid("swept"), "attempt": 2, "pod_id": uuid("p2.1")}
    run.strangers.append({**stranger, "beaten_by": uuid("p3.1"), "at": at(24.1)})


@sick(i05_checkpoints.check, "numbered [1, 3]")
def a_step_is_missing(run: Run) -> None:
    step = next(s for s in run.steps if s["job_id"] == uuid("plain") and s["seq"] == 2)
    run.steps.remove(step)


@sick(i05_checkpoints.check, "are recorded twice")
def a_step_is_there_twice(run: Run) -> None:
    run.step("plain", "2:pure", 1.75)


@sick(i05_checkpoints.check, "its head says 2 steps, but there are 3")
def the_head_lags_behind(run: Run) -> None:
    run.jobs["plain"]["checkpoint"] = {"seq": 2}


@sick(i05_checkpoints.check, "COMPLETED without 2:pure")
def a_job_completes_too_early(run: Run) -> None:
    run.steps = [s for s in run.steps if (s["job_id"], s["seq"]) != (uuid("plain"), 3)]
    run.jobs["plain"]["checkpoint"] = {"seq": 2}


@sick(i05_checkpoints.check, "its program is 0:model, 1:idempotent, 2:pure")
def steps_are_out_of_order(run: Run) -> None:
    for step in run.steps:
        if step["job_id"] == uuid("plain"):
            step["key"] = {"0:model": "1:idempotent", "1:idempotent": "0:model"}.get(
                step["key"], step["key"]
            )


@sick(i05_checkpoints.check, "diverged")
def a_replay_diverges(run: Run) -> None:
    run.jobs["poison"].update(error_code="diverged", error_message="step 0:poison")


def hand_back(run: Run) -> Row:
    """Make an attempt of a job one that its pod's code could not take."""
    row = next(a for a in run.attempts if a["job_id"] == uuid("retried0"))
    row.update(outcome="misfit", error="it lacks site")
    return row


@sick(i30_fit.check, "it does not fit the only code: it lacks site")
def a_job_does_not_fit_though_all_pods_are_alike(run: Run) -> None:
    hand_back(run)


@sick(i30_fit.check, "code 1 looked again, in attempt 9")
def the_same_code_looks_twice(run: Run) -> None:
    row = hand_back(run)
    run.attempts.append({**row, "attempt": 9})


@sick(i30_fit.check, "it failed as unfit, and no code has looked")
def a_job_is_unfit_for_no_code(run: Run) -> None:
    run.jobs["poison"].update(error_code="unfit")


@sick(i30_fit.check, "s, 5 s are given")
def a_job_fails_before_its_wait_for_code_is_over(run: Run) -> None:
    row = hand_back(run)
    run.jobs["retried0"].update(
        status="FAILED", error_code="unfit", finished_at=row["ended_at"] + timedelta(seconds=1)
    )


@sick(i06_retries.check, "attempt 1 was misfit, retries went from 0 to 1")
def a_hand_back_costs_a_retry(run: Run) -> None:
    hand_back(run)


@sick(i06_retries.check, "it counts 0 retries, its history shows 1")
def a_retry_is_not_counted(run: Run) -> None:
    run.jobs["retried0"]["retry_count"] = 0


@sick(i06_retries.check, "attempt 1 was handed_back, retries went from 0 to 1")
def a_drain_costs_a_retry(run: Run) -> None:
    row = next(a for a in run.attempts if a["job_id"] == uuid("retried0"))
    row["outcome"] = "handed_back"


@sick(i06_retries.check, "1 retries, the limit is 0")
def there_are_too_many_retries(run: Run) -> None:
    run.jobs["retried0"]["max_retries"] = 0


@sick(i06_retries.check, "was tried again, the last of 1")
def a_spent_task_is_tried_again(run: Run) -> None:
    run.jobs["killed"]["worker_attempts"] = 1
    row = next(a for a in run.attempts if a["job_id"] == uuid("killed"))
    row["outcome"] = "failed"


@sick(i06_retries.check, "attempt 2 counts as try 2, 0 failed before it")
def a_pods_death_costs_a_try(run: Run) -> None:
    output = {"attempt": 2, "max": 6, "retry_count": 0}
    run.fact("internal", "job", 11.2, **output)
    run.facts[-1] |= {"type": "error", "job_id": uuid("killed"), "attempt": 2}


@sick(i06_retries.check, "attempt 2 is try 2 of its task, 0 failed before it")
def to_be_handed_back_costs_a_try(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("killed") and c["attempt"] == 2)
    claim["spent"] = 2


@sick(i06_retries.check, "before it was due")
def a_retry_comes_too_early(run: Run) -> None:
    row = next(
        r for r in run.transitions if r["job_id"] == uuid("retried0") and r["new"] == "RETRY"
    )
    row["metadata"]["next_retry_at"] = at(20.0).isoformat()


@sick(i06_retries.check, "is to be tried again in 400.00 s")
def a_pause_is_longer_than_any_may_be(run: Run) -> None:
    row = next(
        r for r in run.transitions if r["job_id"] == uuid("retried0") and r["new"] == "RETRY"
    )
    row["metadata"]["next_retry_at"] = at(14.3 + 400).isoformat()


@sick(i06_retries.check, "that is no jitter")
def all_pause_for_equally_long(run: Run) -> None:
    for row in run.transitions:
        if row["new"] == "RETRY":
            seconds = row["at"].timestamp() - at(0).timestamp()
            row["metadata"]["next_retry_at"] = at(seconds + 0.1).isoformat()


@sick(i10_whole_commits.check, "its history has a gap")
def a_transition_is_not_in_the_history(run: Run) -> None:
    run.transitions = [
        r for r in run.transitions if (r["job_id"], r["new"]) != (uuid("plain"), "RUNNING")
    ]


@sick(i10_whole_commits.check, "it is COMPLETED, its history ends with RUNNING")
def the_last_transition_is_not_in_the_history(run: Run) -> None:
    run.transitions = [
        r for r in run.transitions if (r["job_id"], r["new"]) != (uuid("plain"), "COMPLETED")
    ]


@sick(i10_whole_commits.check, "its history says PENDING → RUNNING → COMPLETED")
def the_history_hides_a_detour(run: Run) -> None:
    run.transitions = [
        r for r in run.transitions if r["job_id"] != uuid("drained") or r["new"] != "RETRY"
    ]
    move = next(m for m in run.moves if (m["job_id"], m["new"]) == (uuid("drained"), "COMPLETED"))
    run.moves.append({**move, "previous": "RUNNING", "new": "RETRY", "at": at(30.8)})
    run.moves.append({**move, "previous": "RETRY", "new": "RUNNING", "at": at(30.9)})


@sick(i10_whole_commits.check, "no record shows how [1] ended")
def an_attempt_has_no_end(run: Run) -> None:
    run.attempts = [a for a in run.attempts if a["job_id"] != uuid("killed")]


@sick(i10_whole_commits.check, "it is at attempt 1, attempts [2] ended")
def an_attempt_ended_that_never_was(run: Run) -> None:
    run.attempts.append({**run.attempts[0], "job_id": uuid("plain"), "attempt": 2})


@sick(i10_whole_commits.check, "it is COMPLETED and has 1 tasks")
def an_ended_job_keeps_its_task(run: Run) -> None:
    run.tasks.append({"job_id": uuid("plain"), "state": "READY"})


@sick(i10_whole_commits.check, "has no dead letter")
def a_failed_job_has_no_dead_letter(run: Run) -> None:
    run.dead_letters.clear()


@sick(i10_whole_commits.check, "it is FAILED and has a dead letter")
def a_denied_job_has_a_dead_letter(run: Run) -> None:
    job = next(job for job in run.jobs.values() if job["status"] == "FAILED")
    job["error_code"] = "denied"


@sick(i10_whole_commits.check, "has attempts and does not exist")
def an_attempt_belongs_to_nobody(run: Run) -> None:
    run.attempts.append({**run.attempts[0], "job_id": uuid("nobody")})


@sick(i10_whole_commits.check, "certainly failed, but job")
def what_certainly_failed_is_there(run: Run) -> None:
    for number, event in enumerate(run.events):
        if event.kind == "submit" and event.type == "ok" and event.value["key"] == "calm":
            run.events.pop(number)
            break
    run.tell(45.0, "client-1", "submit", "fail", key="calm", error="refused")


@sick(i10_whole_commits.check, "certainly failed, but job")
def what_was_told_to_have_failed_is_found_by_asking_again(run: Run) -> None:
    for number, event in enumerate(run.events):
        if event.kind == "submit" and event.type == "ok" and event.value["key"] == "calm":
            run.events[number] = evolve(event, type="fail")
    run.tell(45.3, "client-1", "submit", "invoke", key="calm")
    run.tell(45.4, "client-1", "submit", "ok", key="calm", job=str(uuid("calm")))


@sick(i14_poison.check, "started again after 6 pod deaths in a row, 3 make a suspect")
def a_poison_job_is_begun_again_and_again(run: Run) -> None:
    run.jobs["poison"].update(status="RUNNING", attempt=2)
    for _ in range(4):
        run.claim("poison", "p3.1", 30.0)
        run.end_attempt("poison", "pod_died", 30.5)


@sick(i14_poison.check, "started again after 3 deaths of its own process")
def a_job_whose_process_died_too_often_is_begun_again(run: Run) -> None:
    run.end_attempt("poison", "process_died", 23.8)
    run.claim("poison", "p3.1", 30.0)


@sick(i14_poison.check, "stopped as poison after 1 deaths of its own process")
def an_innocent_job_is_condemned_for_the_deaths_of_its_pods(run: Run) -> None:
    for row in run.attempts:
        if row["job_id"] == uuid("poison"):
            row["outcome"] = "pod_died"


@sick(i14_poison.check, "was stopped as poison: it was ended with its pod")
def an_innocent_job_is_condemned_for_deaths_that_were_put_on_its_record(run: Run) -> None:
    run.end_attempt("plain", "process_died", 1.6)
    run.claim("plain", "p2.1", 1.7)
    run.end_attempt("plain", "process_died", 1.8)
    run.claim("plain", "p2.1", 1.9)
    run.jobs["plain"].update(
        status="FAILED", error_code="poison", error_message="it was ended with its pod"
    )


@sick(i14_poison.check, "stopped as poison after 1 deaths of its own process")
def a_step_does_not_end_a_row_of_deaths(run: Run) -> None:
    run.step("poison", "0:pure", 23.5)


@sick(i14_poison.check, "kills its pods, but is RUNNING")
def a_poison_job_never_ends(run: Run) -> None:
    run.jobs["poison"]["status"] = "RUNNING"


@sick(i14_poison.check, "stopped as poison after 1 deaths of its own process")
def a_job_is_condemned_too_early(run: Run) -> None:
    run.jobs["plain"].update(status="FAILED", error_code="poison")


@sick(i20_legal_transitions.check, "went from PENDING to COMPLETED")
def a_job_completes_without_running(run: Run) -> None:
    row = next(r for r in run.transitions if r["job_id"] == uuid("plain") and r["new"] == "RUNNING")
    run.transitions.append({**row, "new": "COMPLETED"})


@sick(i20_legal_transitions.check, "began as RUNNING")
def a_job_begins_in_the_midst(run: Run) -> None:
    run.transitions = [
        r for r in run.transitions if r["job_id"] != uuid("plain") or r["previous"] == "RUNNING"
    ]


@sick(i21_idempotency_keys.check, "key plain was answered with 2 jobs")
def one_key_is_two_jobs(run: Run) -> None:
    run.tell(3.0, "client-3", "submit", "invoke", key="plain")
    run.tell(3.1, "client-3", "submit", "ok", key="plain", job=str(uuid("other")))


@sick(i21_idempotency_keys.check, "key plain made 2 jobs")
def a_repeat_makes_a_second_job(run: Run) -> None:
    run.jobs["plain again"] = {**run.jobs["plain"], "id": uuid("plain again")}


@sick(i21_idempotency_keys.check, "accepted for 2 different requests")
def another_request_under_the_same_key_is_taken(run: Run) -> None:
    run.tell(3.0, "client-3", "submit", "invoke", key="plain", body="another")
    run.tell(3.1, "client-3", "submit", "ok", key="plain", job=str(uuid("plain")))


@sick(i21_idempotency_keys.check, "refused for its own request")
def the_same_request_is_refused(run: Run) -> None:
    run.tell(3.0, "client-3", "submit", "invoke", key="plain")
    run.tell(3.1, "client-3", "submit", "fail", key="plain", code="key_reused")


@sick(i10_whole_commits.check, "was confirmed as cancelled, but is COMPLETED")
def a_cancelled_job_goes_on(run: Run) -> None:
    run.tell(1.2, "ann", "cancel", "invoke", job=str(uuid("plain")), by="ann")
    run.tell(1.3, "ann", "cancel", "ok", job=str(uuid("plain")), after="CANCELLED")


@sick(i10_whole_commits.check, "was cancelled by bob, who never requested it")
def a_job_is_cancelled_that_nobody_cancelled(run: Run) -> None:
    run.jobs["cancelled"]["cancelled_by"] = "bob"


@sick(i24_liveness.check, "the run was stuck")
def a_run_is_stuck(run: Run) -> None:
    run.phase(52.0, "stuck")


@sick(i24_liveness.check, "the backlog took 299 s")
def the_backlog_goes_down_too_slowly(run: Run) -> None:
    run.events = [event for event in run.events if event.value.get("name") != "quiet"]
    run.phase(332, "quiet")
    run.submit("slow", "sleep", 33.0)
    run.claim("slow", "p3.1", 34.0)
    run.move("slow", "COMPLETED", 332.0)


@sick(i24_liveness.check, "is still queued: READY")
def a_task_is_left_in_the_queue(run: Run) -> None:
    run.tasks.append({"job_id": uuid("calm"), "state": "READY"})


@sick(i24_liveness.check, "p3.1 lost job")
def a_pod_loses_what_it_claimed_after_the_faults(run: Run) -> None:
    run.attempts.append(
        {**run.attempts[0], "job_id": uuid("calm"), "attempt": 1, "outcome": "lease_expired"}
    )


@sick(
    i24_liveness.check, "failed for a reason that the run did not cause: rejected: no such column"
)
def a_job_fails_by_an_error_of_ours(run: Run) -> None:
    output = {"error_code": "rejected", "error_class": "PERMANENT"}
    run.jobs["plain"].update(status="FAILED", error_message="no such column", **output)


@sick(i36_pods_live.check, "p1.2 ended by itself, with code 1: actor crashed")
def a_pod_crashes(run: Run) -> None:
    run.tell(40.0, "p1", "exit", life=2, pid=1, record="vm:p1.2", code=1, signals=[])
    run.logs["p1.2"] = "ready\nactor crashed\n\n"


@sick(i36_pods_live.check, "p1.2 ended by itself, with code -9: ready")
def a_pod_is_killed_by_no_fault_of_the_run(run: Run) -> None:
    run.tell(40.0, "p1", "exit", life=2, pid=1, record="vm:p1.2", code=-9, signals=[])
    run.logs["p1.2"] = "ready"
    run.fault(9, 20.0, 20.5, nemesis="point", pod="p1")
    run.fault(10, 39.0, 41.0, nemesis="point", pod="p2")


@sick(i37_logs.check, "lines of 0 are stored twice")
def a_line_is_stored_twice(run: Run) -> None:
    run.log_lines.append(a_line("logged", 39, attempt=2))


@sick(i37_logs.check, "are not in their order")
def lines_are_out_of_order(run: Run) -> None:
    run.log_lines[:2] = run.log_lines[1::-1]


@sick(i37_logs.check, "1 lines are missing between others, and 0 are counted")
def a_line_is_missing(run: Run) -> None:
    del run.log_lines[3]


@sick(i37_logs.check, "59997 lines are missing between others, and 1 are counted")
def dropped_lines_are_not_counted(run: Run) -> None:
    run.log_lines[-1]["dropped"] = 1


@sick(i37_logs.check, "the last 5 lines of 0")
def the_last_lines_of_a_job_in_the_calm_are_missing(run: Run) -> None:
    run.submit("calm log", "log", 47.0)
    run.claim("calm log", "p3.1", 47.1)
    run.log_lines += [a_line("calm log", n) for n in range(35)]
    run.step("calm log", "0:log", 47.4)
    run.move("calm log", "COMPLETED", 47.5)


@sick(i37_logs.check, "the job has had 2 attempts")
def a_line_is_of_no_attempt(run: Run) -> None:
    run.log_lines.append(a_line("logged", 0, attempt=3))


@pytest.mark.parametrize("check, spoil, output", sick.all)
def test_sick_jobs_are_found(check: Checker, spoil: Spoil, output: str) -> None:
    assert_seen(check, spoil, output)


def test_a_pod_that_dies_at_a_crash_point_of_the_plan_is_excused() -> None:
    run = healthy_run()
    run.fault(9, 10.5, 40.0, nemesis="point", pod="p1")
    run.tell(40.1, "p1", "exit", life=2, pid=1, record="vm:p1.2", code=-9, signals=[])
    assert i36_pods_live.check(run.evidence()).result is Result.VALID


def test_the_jobs_that_broke_a_rule_are_named() -> None:
    run = healthy_run()
    two_pods_claim_the_same_attempt(run)
    assert i04_one_owner.check(run.evidence()).jobs == (uuid("plain"),)


def test_uncertain_evidence_breaks_no_rule() -> None:
    """A submission whose reply was lost, a job that was released, one that waits at a breaker."""
    run = healthy_run()
    run.tell(46.0, "client-1", "submit", "invoke", key="perhaps")
    run.tell(46.1, "client-1", "submit", "info", key="perhaps", error="reply lost")
    row = next(
        r for r in run.transitions if r["job_id"] == uuid("retried1") and r["new"] == "RETRY"
    )
    row["metadata"].update(waiting_on="llm:m", next_retry_at=at(40.0).isoformat())
    for check in (i01_acknowledged.check, i06_retries.check, i10_whole_commits.check):
        assert check(run.evidence()).result is Result.VALID


def test_wait_for_a_person_is_no_backlog() -> None:
    run = healthy_run()
    the_backlog_goes_down_too_slowly(run)
    run.jobs["slow"]["status"] = "RUNNING"
    run.transitions = [t for t in run.transitions if t["at"] != at(332.0)]
    run.move("slow", "WAITING_FOR_APPROVAL", 36.0)
    run.claim("slow", "p3.1", 331.0)
    run.move("slow", "COMPLETED", 332.0)
    verdict = i24_liveness.check(run.evidence())
    assert verdict.result is Result.VALID, verdict.why
    assert verdict.figures["drained_s"] < 20


def test_calm_after_the_rest_is_no_backlog() -> None:
    """Without a clock the time of the whole rest counts: not that of the calm behind it."""
    run = healthy_run()
    run.phase(120.0, "calm")
    run.phase(5_000.0, "quiet")
    whole = run.evidence()
    evidence = evolve(
        whole,
        events=tuple(each for each in whole.events if each.process != "probe"),
        transitions=tuple(t for t in whole.transitions if t["new"] != i24_liveness.WAITS),
    )
    assert not Timeline.of(evidence).has_clock
    verdict = i24_liveness.check(evidence)
    assert verdict.result is Result.VALID, verdict.why


def test_continuation_of_a_failed_job_is_no_second_job_of_its_key() -> None:
    run = healthy_run()
    run.jobs["again"] = {
        **run.jobs["plain"],
        "id": uuid("again"),
        "origin_id": uuid("plain"),
        "lineage_id": uuid("plain"),
    }
    assert i21_idempotency_keys.check(run.evidence()).result is Result.VALID
