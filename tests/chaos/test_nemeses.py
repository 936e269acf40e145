"""Each fault of pods really happens, reports its target, and is healed, also when cancelled."""

import json
import random
from datetime import datetime, timedelta

import pytest

from chaos.cluster.pods import Pod
from chaos.nemeses import ALL, absent
from chaos.nemeses.clock import Clock
from chaos.nemeses.drain import Drain
from chaos.nemeses.kill import Kill
from chaos.nemeses.kill_at_point import KillAtPoint
from chaos.nemeses.kill_mid_query import KillMidQuery
from chaos.nemeses.nemesis import Nemesis
from chaos.nemeses.pause import Pause
from chaos.nemeses.pause_jobs import PauseJobs
from chaos.nemeses.second_term import SecondTerm
from chaos.nemeses.starve import Starve
from chaos.nemeses.stop_in_transaction import StopInTransaction
from chaos.nemeses.tick import Tick
from chaos.windows import Window
from chaos.workloads.program import Op
from tests.support.eventually import eventually
from tests.support.playing import Playing, state_of

BACKEND_GONE_S = 2.0
"""A server that looks for its client each second has noticed by then."""


@pytest.mark.parametrize("nemesis", ALL, ids=lambda each: str(each.name))
def test_fault_details_depend_on_the_seed_and_serialise_to_json(nemesis: Nemesis) -> None:
    drawn = [nemesis.draw(random.Random(f"{seed}")) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    for for_s, detail in drawn:
        assert for_s >= 0
        assert json.loads(json.dumps(detail)) == detail
    assert nemesis.weight > 0
    assert nemesis.fault.startswith("F")


def test_nemeses_have_distinct_names() -> None:
    assert len({nemesis.name for nemesis in ALL}) == len(ALL)
    assert absent().keys() <= {nemesis.name for nemesis in ALL}


def test_a_pod_is_killed_in_a_model_call(playing: Playing) -> None:
    playing.submit((Op.MODEL, 5_000))
    eventually(lambda: playing(playing.stage.model.open_conversations()), what="a call is open")
    before = {pod.title for pod in playing.stage.pods}
    met = playing.inject(Kill(), place=0, aim=Window.MODEL_CALL, into_drain_s=0.0)
    assert Window.MODEL_CALL in met["windows"]
    killed = playing.stage.pods_kept.places[int(met["pod"][1:]) - 1].lives[met["life"] - 1]
    assert killed.title in before
    playing.until(killed.ended.is_set, what="it has ended")
    assert killed.process.returncode == -9


def test_draining_pod_is_killed_during_its_drain(playing: Playing) -> None:
    playing.submit(*[(Op.IDEMPOTENT, 8_000)] * 2)
    eventually(lambda: _pending(playing), what="an effect is under way")
    place = _place_of_the_effect(playing)
    met = playing.inject(Kill(), place=place, aim=Window.DRAIN, into_drain_s=0.05)
    assert Window.DRAIN in met["windows"]


def test_a_pod_stands_still_between_effect_and_record(playing: Playing) -> None:
    playing.submit((Op.RECONCILABLE, 6_000))
    fault = playing.begin(Pause(), place=0, aim=Window.UNRECORDED, leases=0.4, into_drain_s=0.0)
    pods = playing.stage.pods
    stopped = playing.until(
        lambda: next((pod for pod in pods if pod.is_stopped), None), what="a pod is stopped"
    )
    assert stopped is not None
    eventually(lambda: state_of(stopped) == "T", what="it stands still")
    met = fault.met()
    assert (met["pod"], met["survived"]) == (stopped.name, True)
    assert state_of(stopped) != "T"


def test_cancelled_pause_resumes_the_pod(playing: Playing) -> None:
    fault = playing.begin(Pause(), place=1, aim=None, leases=100.0, into_drain_s=0.0)
    pod = playing.pod(1)
    playing.until(lambda: pod.is_stopped, what="it is stopped")
    fault.end()
    assert state_of(pod) != "T"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_pod_ends_itself_at_a_point(playing: Playing, how: str) -> None:
    before = playing.pod(0)
    met = playing.inject(KillAtPoint(), place=0, point="after_promote", nth=1, how=how, leases=0.2)
    assert "missed" not in met
    lives = playing.stage.pods_kept.places[0].lives
    armed = lives[lives.index(before) + 1]
    assert "SIGKILL" not in armed.signals
    assert (armed.process.returncode == -9) if how == "kill" else armed.is_alive


def test_self_stopped_pod_resumes_once_its_job_runs_elsewhere(
    playing: Playing,
) -> None:
    before = playing.pod(0)
    fault = playing.begin(
        KillAtPoint(), place=0, point="before_step", nth=1, how="stop", until_taken=True
    )
    lives = playing.stage.pods_kept.places[0].lives
    playing.until(lambda: lives[-1] is not before and lives[-1].ready, what="the armed pod")
    keys = [playing.submit((Op.SLEEP, 1500)) for _ in range(24)]  # more than the other pod takes
    met = fault.met()
    assert "missed" not in met
    attempts = "SELECT max(attempt) AS most FROM cortex.job WHERE payload->>'key' = ANY ($1)"
    assert playing.sql(attempts, keys)[0]["most"] > 1
    assert lives[-1].is_alive
    assert not lives[-1].is_stopped


def test_a_point_that_is_not_reached_leaves_no_pod_armed(playing: Playing) -> None:
    before = playing.pod(0)
    fault = playing.begin(
        KillAtPoint(), place=0, point="before_reconcile", nth=1, how="kill", leases=1.0
    )
    place = playing.stage.pods_kept.places[0]
    playing.until(lambda: place.lives[-1] is not before, what="another pod was started")
    armed = place.lives[-1]
    fault.end()
    playing.until(armed.ended.is_set, what="the armed pod is gone")
    assert place.next_environment == {}


def test_a_pod_is_killed_while_a_statement_of_it_waits(playing: Playing) -> None:
    playing.submit(*[(Op.SLEEP, 300)] * 40)  # writes a step each time
    met = playing.inject_into(Window.COMMIT, KillMidQuery(), place=0)
    assert met.get("gone_s", 99) < BACKEND_GONE_S, met


def test_a_pod_is_stopped_with_rows_locked(playing: Playing) -> None:
    for _ in range(40):
        playing.submit((Op.APPROVAL, 0))  # each suspends its job, in a transaction
    met = playing.inject(StopInTransaction(), place=0, leases=0.1)
    assert Window.ROW_LOCK in met["windows"], met


def test_starved_pod_stands_still_most_of_the_time(playing: Playing) -> None:
    pod = playing.pod(0)
    fault = playing.begin(Starve(), place=0, share=0.05)
    for state in "TST":
        eventually(
            lambda state=state: (state_of(pod) == "T") == (state == "T"),  # type: ignore[misc]
            what="it stands still most of the time",
        )
    fault.end()
    assert state_of(pod) != "T"


def test_pods_leave_one_after_the_other(playing: Playing) -> None:
    leaving = [playing.pod(place) for place in (1, 0)]
    met = playing.inject(Drain(), place=1, rolls=True)
    assert met["pods"] == ["p2", "p1"]
    assert all(took_s is not None for took_s in met["took_s"].values())
    assert [pod.process.returncode for pod in leaving] == [0, 0], [pod.log for pod in leaving]
    ready = [e for e in playing.history.events if e.kind == "ready" and e.process == "p2"][-1]
    left = [e for e in playing.history.events if e.kind == "signal" and e.process == "p1"][-1]
    assert ready.at_s < left.at_s, "the next one is asked when the last one has been replaced"


def test_second_term_makes_a_pod_hand_back_its_jobs(playing: Playing) -> None:
    playing.submit(*[(Op.IDEMPOTENT, 8_000)] * 2)
    eventually(lambda: _pending(playing), what="an effect is under way")
    met = playing.inject(SecondTerm(), place=_place_of_the_effect(playing), after_s=0.1)
    assert Window.DRAIN in met["windows"]
    assert met["took_s"] < playing.stage.settings.close_s


def test_a_tick_runs_beside_the_pods_and_is_killed(playing: Playing) -> None:
    met = playing.inject(Tick(), lives_s=0.1, how="kill")
    assert met["code"] == -9
    playing.sql("TRUNCATE cortex.runner")
    whole = playing.inject(Tick(), lives_s=30.0, how="kill")
    assert whole["code"] == 0
    ticked = "SELECT FROM cortex.runner WHERE holder LIKE 'tick %'"
    assert playing.sql(ticked)


def test_a_job_is_paused_by_the_command_line_and_resumed(playing: Playing) -> None:
    playing.submit((Op.SLEEP, 8_000))
    fault = playing.begin(PauseJobs(), kind="job", pick=0)
    paused = "SELECT FROM cortex_worker.pause p JOIN cortex.job j ON j.id::text = p.name"
    eventually(lambda: playing.sql(paused), what="a job is paused")
    fault.end()
    assert playing.sql(paused) == []
    noted = "SELECT is_over FROM chaos.pause ORDER BY n DESC LIMIT 2"
    assert [row["is_over"] for row in playing.sql(noted)] == [True, False]


@pytest.mark.skipif(Clock.name in absent(), reason=absent().get(Clock.name, ""))
def test_the_clock_of_a_pod_is_wrong_for_one_life(playing: Playing) -> None:
    before = playing.pod(0)
    fault = playing.begin(Clock(), place=0, skew_s=600)
    place = playing.stage.pods_kept.places[0]
    playing.until(lambda: place.lives[-1] is not before, what="another pod was started")
    skewed = playing.pod(0)
    assert 500 < _ahead_s(playing, skewed) < 700
    fault.end()
    playing.until(skewed.ended.is_set, what="the pod with the wrong clock is gone")
    assert -60 < _ahead_s(playing, playing.pod(0)) < 60


def _pending(playing: Playing) -> bool:
    rows = playing.sql("SELECT FROM cortex.effect WHERE status = 'PENDING'")
    return bool(rows)


def _place_of_the_effect(playing: Playing) -> int:
    """The pod whose job is in the middle of one."""
    query = """
        SELECT p.name FROM cortex.effect e JOIN cortex.job j ON j.id = e.job_id
        JOIN cortex.pod p ON p.id = j.pod_id WHERE e.status = 'PENDING' AND j.status = 'RUNNING'
    """
    records = {row["name"] for row in playing.sql(query)}
    places = playing.stage.pods_kept.places
    return next(n for n, each in enumerate(places) if each.pod and each.pod.record in records)


def _ahead_s(playing: Playing, pod: Pod) -> float:
    """How far the clock by which a pod writes its log is ahead of the server's."""
    (row,) = playing.sql("SELECT clock_timestamp() AS now")
    output = datetime.fromisoformat(json.loads(pod.log.splitlines()[-1])["timestamp"])
    ahead: timedelta = output - row["now"]
    return ahead.total_seconds()
