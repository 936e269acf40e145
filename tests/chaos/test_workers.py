"""Pods of several processes: their plan, their faults, and how checkers see them."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chaos.checkers import i22_no_leaks
from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Result
from chaos.cluster.pods import is_running
from chaos.nemeses import OF_ONE_PROCESS, OF_WORKERS
from chaos.nemeses.kill import Kill
from chaos.nemeses.kill_worker import KillWorker
from chaos.nemeses.stop_worker import StopWorker
from chaos.plan import Options, UnknownFaultError, chosen, make_plan
from tests.support.eventually import eventually
from tests.support.evidence import uuid
from tests.support.healthy_run import healthy_run
from tests.support.playing import Playing
from tests.support.servers.postgres import make_home, remove_servers


@pytest.fixture(scope="module")
def playing(run_dir: Path) -> Iterator[Playing]:
    folder = make_home(run_dir)
    playing = Playing(folder, workers=2)
    yield playing
    playing.close()
    remove_servers(folder)


def workers_of(playing: Playing) -> list[int]:
    """The workers of the first pod, once it is ready and has both."""
    pod = playing.pod()
    playing.until(lambda: len(pod.workers()) == 2, what="two workers")
    return pod.workers()


def test_workers_are_broken_one_by_one_only_where_there_are_several() -> None:
    alone, several = chosen(()), chosen((), workers=2)
    assert several.keys() - alone.keys() == set(OF_WORKERS)
    assert alone.keys() - several.keys() == set(OF_ONE_PROCESS)
    with pytest.raises(UnknownFaultError, match=r"'kill-worker' is not available here: .*workers"):
        chosen(("kill-worker",))
    plan = make_plan(Options(seed=1, workers=2))
    assert {fault.nemesis for fault in plan.faults} >= set(OF_WORKERS)


def test_killed_worker_is_replaced_while_its_pod_runs(playing: Playing) -> None:
    pod, before = playing.pod(), workers_of(playing)
    met = playing.inject(KillWorker(), place=0, nth=1, whom="one")
    assert (met["pod"], met["killed"]) == (pod.name, 1)
    playing.until(lambda: set(pod.workers()) - set(before), what="a new one")
    assert before[0] in pod.workers(), "the other one has stayed"
    playing.until(lambda: _count(playing, "worker-exit") == 1, what="its end is recorded")
    assert pod.is_alive


@pytest.mark.parametrize("whom", ["pod", "parent"])
def test_no_worker_outlives_its_pod(playing: Playing, whom: str) -> None:
    pod, workers = playing.pod(), workers_of(playing)
    if whom == "parent":
        playing.inject(Kill(), place=0, aim=None, into_drain_s=0.0)
    else:
        playing.inject(KillWorker(), place=0, nth=0, whom=whom)
    playing.until(pod.ended.is_set, what="it has ended")
    assert not [pid for pid in workers if is_running(pid)]
    assert _count(playing, "outlived") == 0


def test_one_worker_is_stopped_and_resumed_alone(playing: Playing) -> None:
    first, second = workers_of(playing)
    fault = playing.begin(StopWorker(), place=0, nth=1, leases=0.3)
    eventually(lambda: psutil.Process(second).status() == psutil.STATUS_STOPPED, what="it stops")
    assert psutil.Process(first).status() != psutil.STATUS_STOPPED
    assert fault.met()["survived"]
    assert psutil.Process(second).status() != psutil.STATUS_STOPPED


def test_a_stopped_pod_stands_still_with_all_of_its_processes(playing: Playing) -> None:
    pod, workers = playing.pod(), workers_of(playing)
    all_of_it = [psutil.Process(pid) for pid in (pod.pid, *workers)]
    pod.stop()
    eventually(lambda: {p.status() for p in all_of_it} == {psutil.STATUS_STOPPED}, what="all stop")
    pod.cont()
    assert psutil.STATUS_STOPPED not in {process.status() for process in all_of_it}


def test_each_worker_has_a_life_of_its_own() -> None:
    run = healthy_run()
    run.tell(1.0, "p9", "start", life=1, pid=900)
    for number, pid in enumerate((901, 902)):
        row = str(uuid(f"worker {number}"))
        run.tell(2.0, "p9", "worker-ready", life=1, pid=pid, id=row)
    run.tell(2.1, "p9", "ready", life=1, pid=900, record="vm:900")
    run.tell(3.0, "p9", "signal", life=1, pid=902, signal="SIGKILL")
    run.tell(3.1, "p9", "worker-exit", life=1, pid=902, code=-9)
    run.tell(5.0, "p9", "signal", life=1, pid=900, signal="SIGTERM")
    run.tell(6.0, "p9", "exit", life=1, pid=900, record="vm:900", code=0)
    timeline = Timeline.of(run.evidence())
    stays, dies = (timeline.life_of(uuid(f"worker {number}")) for number in range(2))
    assert stays is not None
    assert dies is not None
    assert (stays.died_s, stays.code, stays.first("SIGTERM")) == (6.0, 0, 5.0)
    assert (dies.died_s, dies.code, dies.first("SIGTERM")) == (3.0, -9, None)
    assert [life.pid for life in timeline.lives if life.place == "p9"] == [901, 902]


def test_a_worker_that_outlives_its_pod_is_seen() -> None:
    run = healthy_run()
    run.tell(20.0, "p1", "outlived", life=1, workers=[901])
    verdict = i22_no_leaks.check(run.evidence())
    assert verdict.result is Result.INVALID
    assert verdict.why == ("p1.1 was outlived by 1 workers",)


def _count(playing: Playing, kind: str) -> int:
    return sum(event.kind == kind for event in playing.history.events)
