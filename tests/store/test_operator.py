"""The head of every screen, and jobs that are looked at again by their ids."""

import attrs

from cortex.domain.job_filter import JobCursor
from cortex.postgres.session import Session
from cortex.store import breakers, operator
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.records.rows import new_id


def test_empty_cluster_has_an_empty_head(store: Session) -> None:
    head = store(operator.head)
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
    head = store(operator.head)
    assert (head.dead, head.breakers, head.pods_ready, head.pods_living) == (1, 1, 1, 2)
    life.sql("ANALYZE cortex.job_record")
    assert store(operator.head).jobs_about == 1


def test_jobs_are_seen_again_by_their_ids(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    first, second, third = life.job(), life.job(), life.job()
    life.failed()
    seen = store(operator.jobs_seen, [first, third, new_id()])
    assert {row.id for row in seen.jobs} == {first, third}
    assert {row.now for row in seen.jobs} == {seen.head.now}
    assert seen.newer_count == 0, "nobody asked since when"
    (row,) = store(operator.jobs_seen, [second]).jobs
    since = JobCursor(second, row.created_at)
    for newer_max, newer_count in ((100, 2), (1, 1)):
        seen = store(operator.jobs_seen, [], since=since, newer_max=newer_max)
        assert (seen.jobs, seen.newer_count) == ([], newer_count)


def test_head_read_with_jobs_equals_the_head_alone(store: Session, database: str) -> None:
    Askers(store, database).asked()
    life = Life(store, database)
    life.type()
    life.failed()
    alone, along = store(operator.head), store(operator.jobs_seen, []).head
    assert alone.first_expiry is not None
    assert along.now >= alone.now
    assert attrs.evolve(along, now=alone.now) == alone
