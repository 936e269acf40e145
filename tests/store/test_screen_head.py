"""The head of every screen, and jobs that are looked at again by their ids."""

from datetime import timedelta

import attrs

from cortex.domain.job_filter import JobCursor
from cortex.postgres.session import Session
from cortex.store import breakers, job_refresh, screen_head
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql


def test_empty_cluster_has_an_empty_head(store: Session) -> None:
    head = store(screen_head.head)
    assert (head.approvals, head.first_expiry, head.breakers, head.dead) == (0, None, 0, 0)
    assert (head.pods_ready, head.pods_living, head.jobs_about) == (0, 0, 0)
    assert not head.is_frozen


def test_head_counts_dead_letters_breakers_and_pods(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    life.failed()
    life.pod("eu-2")
    life.sql("UPDATE cortex.pod SET state = 'DRAINING' WHERE name = 'eu-2'")
    store(breakers.force_open, "llm:gpt", by="ana", reason="it lies")
    head = store(screen_head.head)
    assert (head.dead, head.breakers, head.pods_ready, head.pods_living) == (1, 1, 1, 2)
    life.sql("ANALYZE cortex.job_record")
    assert store(screen_head.head).jobs_about == 1


def test_jobs_are_seen_again_by_their_ids(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    first, second, third = life.job(), life.job(), life.job()
    life.failed()
    seen = store(job_refresh.refresh, [first, third, new_id()])
    assert {row.id for row in seen.jobs} == {first, third}
    assert {row.now for row in seen.jobs} == {seen.head.now}
    assert seen.newer_count == 0, "nobody asked since when"
    (row,) = store(job_refresh.refresh, [second]).jobs
    since = JobCursor(second, row.created_at)
    for newer_max, newer_count in ((100, 2), (1, 1)):
        seen = store(job_refresh.refresh, [], since=since, newer_max=newer_max)
        assert (seen.jobs, seen.newer_count) == ([], newer_count)


def test_head_read_with_jobs_equals_the_head_alone(store: Session, database: str) -> None:
    Askers(store, database).asked()
    life = Life(store, database)
    life.type()
    life.failed()
    alone, along = store(screen_head.head), store(job_refresh.refresh, []).head
    assert alone.first_expiry is not None
    assert along.now >= alone.now
    assert attrs.evolve(along, now=alone.now) == alone


def ready_and_living(life: Life) -> tuple[int, int]:
    head = life.call(screen_head.head)
    return head.pods_ready, head.pods_living


def be_silent(dsn: str, seconds: float) -> None:
    sql(
        dsn,
        "UPDATE cortex.pod SET heartbeat_at = cortex.now() - $1::interval",
        timedelta(seconds=seconds),
    )


def test_a_pod_that_has_been_silent_for_too_long_is_not_ready(life: Life, database: str) -> None:
    assert ready_and_living(life) == (0, 0)
    life.pod()
    assert ready_and_living(life) == (1, 1)
    be_silent(database, 93)
    assert ready_and_living(life) == (1, 1)
    be_silent(database, 96)
    assert ready_and_living(life) == (0, 1), "it is not known to be dead"
