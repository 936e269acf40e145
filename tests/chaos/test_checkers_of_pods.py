"""Each way in which pods and the database can be sick: a healthy run, spoilt."""

import pytest
from attrs import evolve

from chaos.checkers import (
    i08_found_in_time,
    i09_nothing_hangs,
    i11_healthy_pods,
    i12_bounded_calls,
    i13_no_bloat,
    i16_no_herd,
    i17_drain,
    i22_no_leaks,
    i23_no_secrets,
    i26_quick_takeover,
)
from chaos.checkers.verdict import Checker, Result
from tests.support.evidence import CANARY, Run, at, uuid
from tests.support.healthy_run import LLM, healthy_run
from tests.support.sick import Sicknesses, Spoil, assert_seen

sick = Sicknesses()


@sick(i08_found_in_time.check, "attempt 1 was due for 4.10 s")
def work_is_found_long_after_it_came(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("calm"))
    claim["at"] = at(49.1)


@sick(i26_quick_takeover.check, "of p5.1 ran elsewhere 2.50 s after its death")
def a_dead_pods_job_waits_although_nothing_else_is_broken(run: Run) -> None:
    next(c for c in run.claims if c["at"] == at(27.7))["at"] = at(29.5)


def slow(what: str, for_s: float) -> dict[str, object]:
    return {"pid": 7, "what": what, "for_s": for_s, "query": "UPDATE cortex.job_record"}


@sick(i09_nothing_hangs.check, "backend 7 idle in transaction for 13.0 s: UPDATE cortex.job_record")
def a_stopped_pod_keeps_a_row_locked(run: Run) -> None:
    run.sample(40.0, slow=[slow("idle in transaction", 13.0)])


@sick(i09_nothing_hangs.check, "waits for a lock for 5.0 s")
def a_lock_is_waited_for_too_long(run: Run) -> None:
    run.sample(40.0, slow=[slow("waits for a lock", 5.0)])


@sick(i09_nothing_hangs.check, "had been silent for 9.0 s")
def a_silent_job_is_not_swept(run: Run) -> None:
    run.sample(45.0, silent=[{"job": str(uuid("plain")), "for_s": 9.0}])


@sick(i09_nothing_hangs.check, "3 deadlocks")
def locks_are_taken_in_different_orders(run: Run) -> None:
    run.events = [event for event in run.events if event.kind != "activity"]
    for second, deadlocks in enumerate((0, 2, 2, 0, 1)):
        run.sample(second, deadlocks=deadlocks)


@sick(i11_healthy_pods.check, "0.300 s after its heartbeat: there were no two polls")
def a_job_is_taken_after_one_look(run: Run) -> None:
    row = next(a for a in run.attempts if a["job_id"] == uuid("killed"))
    last = max(b["at"] for b in run.beats if b["pod_id"] == uuid("p1.1"))
    row["ended_at"] = at(last.timestamp() - at(0).timestamp() + 0.3)


@sick(i11_healthy_pods.check, "from p1.1 0.300 s after its death: there were no two polls")
def a_killed_pods_job_is_taken_after_one_look(run: Run) -> None:
    row = next(a for a in run.attempts if a["job_id"] == uuid("killed"))
    run.beats = [b for b in run.beats if b["pod_id"] != uuid("p1.1") or b["at"] < at(9.5)]
    row["ended_at"] = at(10.3)


@sick(i11_healthy_pods.check, "was swept 1.10 s after its last heartbeat")
def a_job_is_swept_before_its_time(run: Run) -> None:
    row = next(r for r in run.renewals if r["job_id"] == uuid("swept"))
    row["at"] = at(21.9)


@sick(i11_healthy_pods.check, "after the server's start, but 2.5 s must pass")
def a_job_is_swept_as_soon_as_the_server_is_back(run: Run) -> None:
    swept = next(a["ended_at"] for a in run.attempts if a["outcome"] == "lease_expired")
    second = swept.timestamp() - at(0).timestamp()
    run.sample(second + 1, started_s=2.0)


@sick(i11_healthy_pods.check, "was taken from p3.1, which was healthy")
def a_job_is_taken_from_a_healthy_pod(run: Run) -> None:
    run.submit("taken", "sleep", 44.0)
    run.claim("taken", "p3.1", 44.1)
    run.end_attempt("taken", "lease_expired", 47.0)


@sick(i11_healthy_pods.check, ", which held its lock")
def a_job_is_taken_on_a_busy_machine_from_a_pod_that_holds_its_lock(run: Run) -> None:
    taken = {"job_id": uuid("plain"), "attempt": 1, "pod_id": uuid("p3.1")}
    run.wrong_deaths.append({**taken, "at": at(24.1)})


@sick(i11_healthy_pods.check, "1 % of the heartbeats of healthy pods")
def heartbeats_share_what_others_wait_for(run: Run) -> None:
    run.beats = [b for b in run.beats if not at(41) < b["at"] < at(43)]
    run.beats = [b for b in run.beats if not at(44) < b["at"] < at(46)]


@sick(i11_healthy_pods.check, "it did not fence itself")
def a_pod_works_on_although_it_cannot_say_that_it_lives(run: Run) -> None:
    run.submit("unfenced", "sleep sleep sleep", 40.0)
    run.claim("unfenced", "p3.1", 40.1)
    run.beats = [
        b for b in run.beats if b["pod_id"] != uuid("p3.1") or not at(40.2) < b["at"] < at(44)
    ]
    for place, second in enumerate((41.0, 42.5, 43.5)):
        run.step("unfenced", f"{place}:sleep", second)


@sick(i12_bounded_calls.check, "submit of client-9 at 36.0 s took 26.0 s")
def a_call_hangs_until_the_net_heals(run: Run) -> None:
    run.tell(10.0, "client-9", "submit", "invoke", key="slow")
    run.tell(36.0, "client-9", "submit", "info", key="slow", error="time-out")


@sick(i12_bounded_calls.check, "decide of client-9 at 10.0 s was never answered")
def a_call_never_returns(run: Run) -> None:
    run.tell(10.0, "client-9", "decide", "invoke", approval="x", by="ann")


@sick(i12_bounded_calls.check, "backend 7 runs for 30.0 s")
def a_statement_runs_without_a_bound(run: Run) -> None:
    run.sample(40.0, slow=[slow("runs", 30.0)])


@sick(i13_no_bloat.check, "a session kept a snapshot for 60 s")
def a_session_keeps_old_rows_alive(run: Run) -> None:
    run.sample(40.0, snapshot_s=60.0)


@sick(i13_no_bloat.check, "there were 30000 dead rows")
def dead_rows_are_not_cleared_away(run: Run) -> None:
    run.sample(40.0, dead_rows={"job": 25_000, "task": 5_000})


@sick(i13_no_bloat.check, "the tables had grown by 60 MB")
def tables_grow_without_bound(run: Run) -> None:
    run.sample(40.0, size_bytes=62_000_000)


@sick(i13_no_bloat.check, "a task had been due for 9.0 s, of which 9.0 s in a row were calm")
def a_task_is_never_found(run: Run) -> None:
    run.sample(49.0, oldest_due_s=9.0, ready=1)


@sick(i16_no_herd.check, f"breaker {LLM} went breaker_closed → breaker_half_opened")
def a_breaker_is_probed_while_it_is_closed(run: Run) -> None:
    run.fact("breaker_half_opened", LLM, 10)


@sick(i16_no_herd.check, "breaker llm:x began with breaker_closed")
def a_breaker_closes_that_was_never_open(run: Run) -> None:
    run.fact("breaker_closed", "llm:x", 8)


@sick(i16_no_herd.check, "closed at 9.0 s, but no probe had a complete answer")
def a_breaker_closes_on_a_probe_that_fails(run: Run) -> None:
    run.model_calls = [
        evolve(call, outcome="broken") if 8 < call.at_s < 9 else call for call in run.model_calls
    ]


@sick(i16_no_herd.check, "model calls after 24.0 s came at once")
def all_call_at_once_when_it_is_healed(run: Run) -> None:
    for number in range(60):
        run.model(f"herd{number}", "0:model", 25.0 + number / 1000)


@sick(i17_drain.check, "claimed while draining")
def a_claim_on_its_way_is_forgotten_until_the_end(run: Run) -> None:
    run.pods["p2.1"]["id"] = uuid("p2.1")
    for event in run.events:
        if event.process == "p2" and event.kind == "exit":
            run.events[run.events.index(event)] = evolve(event, at_s=34.0)
    run.submit("forgotten", "sleep", 29.0)
    run.claim("forgotten", "p2.1", 30.02)
    run.end_attempt("forgotten", "handed_back", 33.5)


@sick(i17_drain.check, "it took 14.0 s, the limit is 11.0 s")
def a_pod_does_not_leave(run: Run) -> None:
    end = next(e for e in run.events if (e.process, e.kind) == ("p2", "exit"))
    run.events.remove(end)
    run.tell(44.0, "p2", "exit", **end.value)


@sick(i17_drain.check, "it claimed job")
def a_pod_claims_while_it_leaves(run: Run) -> None:
    claim = next(c for c in run.claims if c["job_id"] == uuid("drained"))
    run.claims.append(
        {**claim, "at": at(32.5), "job_id": uuid("calm"), "previous": 5, "attempt": 6}
    )


@sick(i17_drain.check, "it ended with code 1")
def a_drain_ends_in_an_error(run: Run) -> None:
    end = next(e for e in run.events if (e.process, e.kind) == ("p2", "exit"))
    end.value["code"] = 1


@sick(i17_drain.check, "without handing job")
def a_pod_leaves_a_job_behind(run: Run) -> None:
    row = next(a for a in run.attempts if a["job_id"] == uuid("drained"))
    row.update(outcome="pod_died", ended_at=at(32.5))


@sick(i17_drain.check, "but is paid for again")
def an_answer_that_came_in_time_is_thrown_away(run: Run) -> None:
    step = next(s for s in run.steps if s["job_id"] == uuid("drained") and s["seq"] == 1)
    step.update(attempt=2, finished_at=at(31.2))


@sick(i22_no_leaks.check, "at rest, 2 pods held 60 connections, the limit is 22")
def connections_are_leaked(run: Run) -> None:
    run.sample(53.0, sessions=60)


@sick(i22_no_leaks.check, "backend 7 was idle in a transaction for 3.0 s")
def transactions_are_left_open(run: Run) -> None:
    run.sample(53.0, idle_in_transaction=1, slow=[slow("idle in transaction", 3.0)])


@sick(i23_no_secrets.check, "a secret appears in steps, column output")
def a_secret_is_in_the_record(run: Run) -> None:
    run.steps[0]["output"] = {"text": f"bad key {CANARY}"}


@sick(i23_no_secrets.check, "a secret appears in the log of p1.1, line 2")
def a_secret_is_in_a_log(run: Run) -> None:
    run.logs["p1.1"] = f"ready\nusing {CANARY}\n"


@pytest.mark.parametrize("check, spoil, text", sick.all)
def test_sick_pods_are_found(check: Checker, spoil: Spoil, text: str) -> None:
    assert_seen(check, spoil, text)


def test_faults_excuse_late_and_lost_jobs() -> None:
    """Late claims, silent jobs and lost jobs of a pod that cannot reach its database."""
    run = healthy_run()
    run.fault(9, 43.0, 49.0, nemesis="blackhole", pods=["p3", "p1", "p2", "clients"])
    run.submit("cut off", "sleep", 44.0)
    run.claim("cut off", "p3.1", 48.4)
    run.end_attempt("cut off", "lease_expired", 51.0)
    run.claim("cut off", "p1.2", 51.1)
    run.step("cut off", "0:sleep", 51.2)
    run.move("cut off", "COMPLETED", 51.3)
    run.sample(48.0, silent=[{"job": str(uuid("cut off")), "for_s": 9.0}])
    for check in (i08_found_in_time.check, i09_nothing_hangs.check, i11_healthy_pods.check):
        verdict = check(run.evidence())
        assert verdict.result is Result.VALID, verdict.why


@pytest.mark.parametrize("named", ["p1", "p2"])
def test_pod_leaving_without_a_database_need_not_hand_back(named: str) -> None:
    """Whichever pod a fault of the database names: all have none."""
    run = healthy_run()
    a_pod_leaves_a_job_behind(run)
    run.fault(9, 29.5, 33.0, nemesis="too-many-connections", pod=named)
    assert i17_drain.check(run.evidence()).result is not Result.INVALID


def test_overloaded_machine_excuses_late_work() -> None:
    run = healthy_run()
    for second in range(36, 50):
        run.sample(second, runnable=9.0)
    work_is_found_long_after_it_came(run)
    a_job_is_taken_from_a_healthy_pod(run)
    heartbeats_share_what_others_wait_for(run)
    for check in (i08_found_in_time.check, i11_healthy_pods.check):
        assert check(run.evidence()).result is not Result.INVALID


@pytest.mark.parametrize("claimed_s, result", [(57.0, Result.INVALID), (54.0, Result.UNKNOWN)])
def test_fault_does_not_excuse_a_wait_long_after_it(claimed_s: float, result: Result) -> None:
    """A pause of 12 s without claims is longer than a poll: the fault is over only at 53.2 s."""
    run = healthy_run()
    run.claims = [claim for claim in run.claims if claim["job_id"] == uuid("calm")]
    for second in range(50, 60):
        run.sample(second + 0.5)
    run.fault(9, 44.0, 45.2, nemesis="deaf", pod="p1")
    run.claims[0]["at"] = at(claimed_s)
    assert i08_found_in_time.check(run.evidence()).result is result


@pytest.mark.parametrize(
    "signals, result",
    [
        (["SIGCONT", "SIGUSR1"], Result.INVALID),
        (["SIGSTOP", "SIGUSR1", "SIGCONT"], Result.VALID),
        (["SIGTERM"], Result.VALID),
    ],
)
def test_only_signals_that_stop_a_pod_excuse_late_work(signals: list[str], result: Result) -> None:
    run = healthy_run()
    work_is_found_long_after_it_came(run)
    for name in signals:
        run.tell(46.0, "p2", "signal", life=1, pid=2, signal=name)
    assert i08_found_in_time.check(run.evidence()).result is result


def test_a_loop_that_was_busy_explains_late_heartbeats() -> None:
    run = healthy_run()
    heartbeats_share_what_others_wait_for(run)
    for beat in run.beats:
        beat["lag_s"] = 1.9
    assert i11_healthy_pods.check(run.evidence()).result is Result.VALID


def test_death_of_a_pod_is_no_heartbeat() -> None:
    run = healthy_run()
    run.beats = [b for b in run.beats if at(20) < b["at"] < at(41)]
    last = {beat["pod_id"]: beat for beat in run.beats}
    run.beats += [{**beat, "at": at(43), "state": "DEAD"} for beat in last.values()]
    assert i11_healthy_pods.check(run.evidence()).result is Result.VALID


def test_a_fault_of_one_pod_does_not_excuse_another_one() -> None:
    run = healthy_run()
    run.fault(9, 43.0, 49.0, nemesis="blackhole", pods=["p1"])
    a_job_is_taken_from_a_healthy_pod(run)
    assert i11_healthy_pods.check(run.evidence()).result is Result.INVALID


def test_one_write_on_its_way_is_no_broken_fence() -> None:
    run = healthy_run()
    a_pod_works_on_although_it_cannot_say_that_it_lives(run)
    run.steps = [s for s in run.steps if s["key"] != "2:sleep" or s["job_id"] != uuid("unfenced")]
    run.jobs["unfenced"]["checkpoint"] = {"seq": 2}
    verdict = i11_healthy_pods.check(run.evidence())
    assert not any("fence" in why for why in verdict.why)


@pytest.mark.parametrize("late_s, is_fenced", [((24.1, 24.4), True), ((24.6, 24.8), False)])
def test_a_continued_pod_has_one_turn_to_fence_itself(
    late_s: tuple[float, ...], is_fenced: bool
) -> None:
    run = healthy_run()
    run.submit("stopped", "sleep sleep", 18.0)
    run.claim("stopped", "p3.1", 18.1)
    run.beats = [
        b for b in run.beats if b["pod_id"] != uuid("p3.1") or not at(18.2) < b["at"] < at(24.5)
    ]
    for place, second in enumerate(late_s):
        run.step("stopped", f"{place}:sleep", second)
    verdict = i11_healthy_pods.check(run.evidence())
    assert any("did not fence itself" in why for why in verdict.why) is not is_fenced


def test_quiet_kills_on_a_busy_machine_are_unknown() -> None:
    run = busy_at_the_quiet_kill(lag_s=0.5)
    verdict = i26_quick_takeover.check(run.evidence())
    assert verdict.result is Result.UNKNOWN
    assert verdict.why[0].startswith("none of 1 quiet kills was measured")


def test_busy_machine_allows_a_takeover_its_lag() -> None:
    for lag_s, result in ((0.01, Result.INVALID), (0.2, Result.VALID)):
        run = busy_at_the_quiet_kill(lag_s=lag_s)
        a_dead_pods_job_waits_although_nothing_else_is_broken(run)
        assert i26_quick_takeover.check(run.evidence()).result is result


def busy_at_the_quiet_kill(*, lag_s: float) -> Run:
    run = healthy_run()
    run.sample(27.2, runnable=9.0)
    beat = next(b for b in run.beats if b["pod_id"] == uuid("p3.1") and b["at"] > at(27.2))
    beat["lag_s"] = lag_s
    return run


def test_run_without_observations_is_unknown() -> None:
    run = healthy_run()
    run.beats.clear()
    run.claims.clear()
    for check in (i08_found_in_time.check, i11_healthy_pods.check):
        assert check(run.evidence()).result is Result.UNKNOWN
