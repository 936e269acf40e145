"""Jobs of agents go to pods that have all of the agent's tools, however their tasks were made."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Suspend
from cortex.postgres.session import Session
from cortex.store import dead_letters, retries, specs, tasks
from cortex.store.dead_letters import Resubmission
from cortex.store.specs import SpecKind
from tests.sql.test_plans import BATCH, POD, ROWS_PER_WANTED, explain
from tests.support.records.dead_letters import fail
from tests.support.records.rows import move_clock, new_id
from tests.support.records.rows import submit as submit_by_sql
from tests.support.servers.postgres import sql

RUN = "run_agent"


def apply(store: Session, name: str, *tools: str) -> None:
    spec = {"name": name, "model": "m", "system": "Help.", "tools": list(tools)}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name=name, spec=spec, by="ana")


def claim(store: Session, *tools: str, pod_id: UUID | None = None) -> list[Claim]:
    store(tasks.promote)
    given: dict[str, Any] = {"types": [RUN, "work"], "limit": 10, "tools": tools}
    return store(tasks.claim, pod_id=pod_id or new_id(), **given)


def claimed(store: Session, *tools: str) -> set[UUID]:
    return {each.lease.job_id for each in claim(store, *tools)}


def test_pod_claims_only_agents_whose_tools_it_has(store: Session, database: str) -> None:
    apply(store, "reader", "read_file", "look_up")
    apply(store, "talker")
    needy = submit_by_sql(database, RUN, agent="reader")
    plain = submit_by_sql(database, RUN, agent="talker")
    other = submit_by_sql(database, "work", agent="reader")  # runs no agent by itself
    assert claimed(store, "read_file") == {plain, other}
    assert claimed(store, "look_up", "send_mail", "read_file") == {needy}


def test_the_order_in_which_tools_are_named_makes_no_other_set(
    store: Session, database: str
) -> None:
    apply(store, "one", "a", "b")
    apply(store, "two", "b", "a")
    apply(store, "two", "b", "a", "c")
    assert sql(database, "SELECT count(*) AS n FROM cortex.tool_set")[0]["n"] == 2


def wait(store: Session, database: str, job_id: UUID) -> None:
    """Let a job wait for a while and come back."""
    pod_id = new_id()
    (found,) = claim(store, "look_up", pod_id=pod_id)
    wish = Suspend(lease=found.lease, delay_s=20.0, is_counted=False, waiting_on="sleep")
    assert store(tasks.suspend, pod_id=pod_id, operations=[wish]) == {job_id}
    move_clock(database, 21)
    assert store(retries.due, limit=10).count == 1


def let_go(store: Session, database: str, job_id: UUID) -> None:
    pod_id = new_id()
    (found,) = claim(store, "look_up", pod_id=pod_id)
    wish = Suspend(lease=found.lease, delay_s=None, is_counted=False, waiting_on="person:x")
    assert store(tasks.suspend, pod_id=pod_id, operations=[wish]) == {job_id}
    assert sql(database, "SELECT cortex.let_go($1) AS done", job_id)[0]["done"]


@pytest.mark.parametrize("comes_back", [wait, let_go])
def test_resumed_job_needs_the_same_tools(
    store: Session, database: str, comes_back: Callable[..., None]
) -> None:
    apply(store, "reader", "look_up")
    job_id = submit_by_sql(database, RUN, agent="reader")
    comes_back(store, database, job_id)
    assert claimed(store) == set()
    (found,) = claim(store, "look_up")
    assert found.lease.job_id == job_id
    assert (found.attempts_spent, found.retry_count) == (1, 0), "neither was counted"


def test_a_retried_letter_needs_the_same_tools(store: Session, database: str) -> None:
    apply(store, "reader", "look_up")
    (dead,) = fail(database, submitted={"type": RUN, "agent": "reader"})
    heir = Resubmission(job_id=dead, new_id=new_id())
    store(dead_letters.resubmit, [heir], by="ana", reason="mended")
    assert claimed(store) == set()
    assert claimed(store, "look_up") == {heir.new_id}


def test_tasks_that_no_pod_can_serve_do_not_slow_the_claim_of_others(
    filled: Callable[..., str],
) -> None:
    """Thousands of them come first."""
    big = filled(
        """
        SET session_replication_role = replica;
        INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots)
        VALUES ('00000000-0000-0000-0000-000000000007', 77, 'test', '0', '{run_agent}', 1000);
        INSERT INTO cortex.tool_set SELECT 'run_agent ' || n, ARRAY['t' || n]
        FROM generate_series(1, 50) n;
        INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, run_at)
        SELECT n, CASE WHEN n > 2000 THEN 'run_agent' ELSE 'run_agent ' || 1 + n % 50 END,
               lpad(to_hex(n), 32, '0')::uuid, 'READY', 3, now() - interval '1 day'
        FROM generate_series(1, 2200) n;
        INSERT INTO cortex.job_record (id, type, worker_job_id, payload)
        SELECT lpad(to_hex(n), 32, '0')::uuid, 'run_agent', n, '{}'
        FROM generate_series(1, 2200) n;
        """
    )
    for _ in range(2):
        looks = explain(big, "tasks.claim", (POD, [RUN], BATCH, 1, 1, ["t51"], ["alone"]))
        assert max(each.rows for each in looks) <= ROWS_PER_WANTED * BATCH
        sql(big, "ANALYZE")
