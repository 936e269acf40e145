"""Children as rows: each submitted once, as many at once as may, none by a job that has ended."""

import json
from itertools import pairwise
from typing import Any

import pytest

from cortex.domain.errors import (
    CapReachedError,
    CortexError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
)
from cortex.store import children, jobs, specs
from cortex.store.specs import SpecKind
from tests.children.conftest import Parents
from tests.support.records.rows import job_row
from tests.support.servers.postgres import sql


def test_step_that_is_repeated_submits_nothing_twice(parents: Parents) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 5, let_go=5)
    assert parents.spawn(claim, 5, let_go=5) == ids
    assert parents.submitted(ids) == ids


def test_step_that_is_repeated_with_other_arguments_is_refused(parents: Parents) -> None:
    claim = parents.running()
    parents.spawn(claim, 5, let_go=2)
    for items, other in (([0, 7], 1), ([0, 1, 2, 9], 3)):  # one that runs, one that is held
        reply = parents.reply(claim, items, let_go=2)
        assert (reply.verdict, reply.ordinal) == ("other", other)
    assert parents.reply(claim, [0], kind="twig").verdict == "other"


def test_as_many_children_run_at_once_as_may(parents: Parents) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 7, let_go=None)
    assert parents.submitted(ids) == []
    ids += parents.spawn(claim, 3, first=7, let_go=3)
    assert parents.submitted(ids) == ids[:3]
    parents.end(ids[1])
    assert parents.submitted(ids) == ids[:4]
    parents.end(ids[0], ids[2])
    assert parents.submitted(ids) == ids[:6]
    parents.end(*ids[3:6])
    parents.end(*ids[6:9])
    assert parents.submitted(ids) == ids


def test_lost_attempt_submits_nothing(parents: Parents) -> None:
    claim = parents.running()
    parents.store(jobs.cancel, claim.lease.job_id, by="me", reason="x")
    sql(parents.stage.dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", claim.lease.job_id)
    assert parents.reply(claim, [1]).verdict == "lease_lost"


def test_end_of_a_parent_gives_up_what_it_holds_and_cancels_the_rest(parents: Parents) -> None:
    claim = parents.running()
    ids = parents.spawn(claim, 6, let_go=2)
    aside = parents.spawn(claim, 1, step="aside", is_detached=True)
    parents.stage.suspend(claim.lease, delay_s=600.0, on="sleep")
    parents.end(claim.lease.job_id)
    parents.end(ids[0])  # another one begins before the list is worked off
    assert parents.submitted(ids) == ids[:3]
    done = parents.store(children.cut)
    assert (done.count, done.left) == (3 + 2, 0)
    query = "SELECT status::text FROM cortex.job_record WHERE id = ANY ($1::uuid[]) ORDER BY id"
    states = [row["status"] for row in sql(parents.stage.dsn, query, ids)]
    assert states == ["CANCELLED"] * 3
    assert [row["status"] for row in sql(parents.stage.dsn, query, aside)] == ["PENDING"]
    assert parents.store(children.cut).count == 0


def test_children_have_what_their_parent_has(parents: Parents) -> None:
    claim = parents.running(tenant="acme", priority=7)
    (child,) = parents.spawn(claim, 1)
    row = sql(parents.stage.dsn, "SELECT * FROM cortex.job_record WHERE id = $1", child)[0]
    parent = claim.lease.job_id
    assert (row["tenant"], row["priority"], row["parent_id"]) == ("acme", 7, parent)
    assert row["submitted_with"].startswith("db:")


def test_children_that_were_held_begin_on_their_terms(parents: Parents) -> None:
    claim = parents.running()
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    first, second = parents.spawn(
        claim,
        2,
        tags=("b", "a"),
        delay_s=900.0,
        queue_name="slow",
        max_retries=7,
        timeout_s=60,
        priority=-3,
        traceparent=header,
    )
    parents.end(first)
    (row,) = sql(
        parents.stage.dsn,
        "SELECT tags, queue_name, max_retries, timeout_s, priority, traceparent, "
        "run_at > cortex.now() + interval '10 minutes' AS is_later "
        "FROM cortex.job_record WHERE id = $1",
        second,
    )
    assert [*row.values()] == [["a", "b"], "slow", 7, 60, -3, header, True]


def test_cap_of_the_tenant_counts_children_that_run(parents: Parents) -> None:
    claim = parents.running(tenant="small")
    sql(
        parents.stage.dsn,
        "INSERT INTO cortex.tenant_cap (tenant, jobs_max, changed_by, reason) "
        "VALUES ('small', 5, 'me', 'x')",
    )
    with pytest.raises(CapReachedError, match='tenant "small" has 1 of at most 5 jobs'):
        parents.reply(claim, range(9), let_go=9)
    assert len(parents.spawn(claim, 9, let_go=4)) == 9


@pytest.mark.parametrize(
    "terms, error, words",
    [
        ({"kind": "bulk"}, ForbiddenError, 'a job may not submit a job of type "bulk"'),
        ({"queue_name": "bulk"}, ForbiddenError, "a job may not submit"),
        ({"agent": "nobody"}, NotFoundError, 'agent "nobody" does not exist'),
        ({"priority": 99_999}, CortexError, "priority 99999 of children is out of bounds"),
        ({"timeout_s": 600_000}, CortexError, "timeout_s 600000 is above the hard limit"),
        ({"kind": "no type"}, CortexError, 'type "no type" of children is out of bounds'),
    ],
)
def test_terms_that_no_child_can_have_are_refused(
    parents: Parents, terms: dict[str, Any], error: type[CortexError], words: str
) -> None:
    claim = parents.running()
    with pytest.raises(error, match=words):
        parents.reply(claim, [1, 2], let_go=1, **terms)


def test_depth_of_a_family_is_bounded_but_for_detached_jobs(parents: Parents) -> None:
    claim = parents.running()
    line = [claim]
    for _ in range(20):
        (child_id,) = parents.spawn(line[-1], 1, kind="work")
        line.append(parents.stage.claim(child_id))
    reply = parents.reply(line[-1], [1], kind="work")
    assert (reply.verdict, reply.ordinal) == ("too_deep", 20)
    for parent, child in pairwise(line):
        (row,) = sql(
            parents.stage.dsn,
            "SELECT parent_id FROM cortex.job_record WHERE id = $1",
            child.lease.job_id,
        )
        assert row["parent_id"] == parent.lease.job_id
    (aside,) = parents.spawn(line[-2], 1, kind="work", step="aside", is_detached=True)
    assert parents.reply(parents.stage.claim(aside), [1], kind="work").verdict == "done"


def test_child_that_runs_a_flow_keeps_the_version_that_took_its_inputs(parents: Parents) -> None:
    def apply(*inputs: str) -> None:
        spec = {"name": "f", "steps": [], "inputs": {name: {"required": True} for name in inputs}}
        parents.store(specs.apply, SpecKind.FLOW, name="f", spec=spec, by="ana")

    apply()
    claim = parents.running()
    flows: dict[str, Any] = {"kind": "run_flow", "let_go": 1, "payload": '{"flow": "f"}'}
    assert parents.reply(claim, range(2), **flows).verdict == "done"
    apply("day")
    assert parents.reply(claim, range(2), **flows).verdict == "done"  # the same
    running, held = parents.ids(claim)
    parents.end(running)
    assert parents.submitted([held]) == [held]
    kept = job_row(parents.stage.dsn, held)["payload"]
    assert json.loads(kept) == {"flow": "f", "version": 1}
    with pytest.raises(InvalidValueError, match='inputs of flow "f" lack day'):
        parents.reply(claim, range(2), step="others", **flows)
