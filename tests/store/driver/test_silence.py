"""Every reader judges a pod's silence by the settings that the pod registered with."""

from datetime import timedelta

import attrs
import pytest

from cortex.config import Settings
from cortex.domain.drain import Liveness
from cortex.domain.job_filter import JobFilter
from cortex.store import doctor, jobs, pods, pulse, screen_head, why
from cortex.store.job_pages import page
from cortex.view.jobs import is_silent as job_is_silent
from cortex.view.why import Cause
from cortex.view.why import why as reason_of
from tests.support.life import CHANCE, Life
from tests.support.servers.postgres import sql

POD = pods.Pod(
    id=CHANCE.new_id(),
    lock_key=1,
    name="pod-1",
    version="1.0",
    job_types=("digest",),
    slots=10,
    liveness=Liveness.HEARTBEAT,
)
PATIENT = attrs.evolve(POD, heartbeat_s=100, zombie_s=900)
HASTY = attrs.evolve(POD, heartbeat_s=1, zombie_s=20)
FENCED = attrs.evolve(POD, heartbeat_s=1, zombie_s=3)


@pytest.mark.parametrize(
    "pod, silent_s, is_silent",
    [
        pytest.param(POD, 93, False, id="by default"),
        pytest.param(POD, 97, True, id="by default, silent"),
        pytest.param(PATIENT, 300, False, id="patient"),
        pytest.param(PATIENT, 310, True, id="patient, silent"),
        pytest.param(HASTY, 4, False, id="hasty"),
        pytest.param(HASTY, 12, True, id="hasty, silent"),
        pytest.param(FENCED, 6, True, id="never later than its jobs are freed"),
    ],
)
def test_silence_is_judged_by_the_pods_own_settings(
    life: Life, database: str, pod: pods.Pod, silent_s: float, is_silent: bool
) -> None:
    life.call(pods.register, pod)
    life.type()
    job_id = life.job()
    life.claim(pod.id)
    for table in ("cortex.pod", "cortex_worker.task"):
        change = f"UPDATE {table} SET heartbeat_at = cortex.now() - $1::interval"  # noqa: S608 -- the two above
        sql(database, change, timedelta(seconds=silent_s))

    assert life.call(screen_head.head).pods_ready == (0 if is_silent else 1)
    (row,) = life.call(pods.page)
    assert (silent_s > row.silent_after_s) == is_silent
    (seen,) = life.call(doctor.living)
    assert seen.is_silent == is_silent
    troubles = life.call(pulse.attention).troubles
    assert [each.name for each in troubles] == (["pod-1"] if is_silent else [])
    facts = life.call(why.facts_of, job_id)
    assert reason_of(facts).cause is (Cause.ORPHANED if is_silent else Cause.RUNNING)
    listed = life.call(page, JobFilter()).jobs
    for job in (*listed, life.call(jobs.show, job_id), life.call(jobs.follow, job_id)):
        assert job_is_silent(job, silent_s) == is_silent
        assert job.zombie_s == pod.zombie_s


def test_pod_without_liveness_settings_has_the_defaults(life: Life, database: str) -> None:
    life.pod()
    (row,) = sql(database, "SELECT peer_check_s, heartbeat_s, zombie_s, sweep_s FROM cortex.pod")
    assert dict(row) == {name: getattr(Settings(), name) for name in row.keys()}  # noqa: SIM118 -- a record's names
    assert all(getattr(POD, name) == value for name, value in row.items())
