"""Facts: recording, resolution, and costs of calls by group."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.job import Claim, Finish, JobStatus
from cortex.postgres.session import Session
from cortex.store import facts, jobs, specs
from cortex.store.facts import CostGroup, Fact
from cortex.store.specs import SpecKind
from tests.support.records.factories import a_pod
from tests.support.records.rows import as_runtime, move_clock, new_id
from tests.support.servers.postgres import sql

HOUR_S = 3600.0


def an_error(job_id: UUID | None = None, **fields: Any) -> Fact:
    return Fact(**{"type": "error", "subtype": "overloaded", "job_id": job_id} | fields)


def a_cost(job_id: UUID, usd: str | None, **fields: Any) -> Fact:
    """A kept call of 10 tokens in and 5 out by default."""
    step = fields.pop("step", "turn-1")
    usage = {"input_tokens": 10, "output_tokens": 5}
    data = {"model": "scripted", "outcome": "kept", "usage": usage} | fields.pop("data", {})
    return Fact(
        type="cost",
        subtype="model_call",
        job_id=job_id,
        step=step,
        call_id=new_id(),
        amount_usd=None if usd is None else Decimal(usd),
        data=data,
        **fields,
    )


def test_facts_return_in_order_with_all_fields(store: Session) -> None:
    job_id = new_id()
    pod_id, agent_id = new_id(), new_id()
    output = an_error(
        job_id,
        source="llm:scripted",
        tenant="acme",
        attempt=2,
        step="turn-1",
        agent_id=agent_id,
        agent_version=3,
        pod_id=pod_id,
        trace_id="trace",
        data={"message": "busy", "class": "TRANSIENT_APP"},
    )
    store(facts.append, [output, an_error(job_id, subtype="second"), an_error()])
    first, second = store(facts.of_job, job_id)
    assert {
        name: getattr(first, name) for name in ("source", "tenant", "attempt", "step", "trace_id")
    } == {
        "source": "llm:scripted",
        "tenant": "acme",
        "attempt": 2,
        "step": "turn-1",
        "trace_id": "trace",
    }
    assert (first.agent_id, first.agent_version, first.pod_id) == (agent_id, 3, pod_id)
    assert first.data == {"message": "busy", "class": "TRANSIENT_APP"}
    assert (second.subtype, second.amount, second.currency) == ("second", None, None)
    assert [f.id for f in store(facts.of_job, job_id, after=first.id)] == [second.id]
    assert len(store(facts.of_job, job_id, limit=1)) == 1


def test_one_invalid_fact_rejects_the_whole_batch(store: Session) -> None:
    with pytest.raises(RejectedError, match="fact_type_check"):
        store(facts.append, [an_error(), Fact(type="rumour", subtype="x")])
    with pytest.raises(InvalidValueError):
        store(facts.append, [an_error(), an_error(step="a\0b")])
    assert store(facts.page, since_s=HOUR_S) == []


def test_data_of_any_kind_is_made_to_fit(store: Session) -> None:
    job_id = new_id()
    stack = "".join(f"frame {n}\n" for n in range(5_000))
    data = {"message": "a\0b \ud800", "stack": stack, "at": job_id, "list": ["\0"]}
    store(facts.append, [an_error(job_id, data=data)])
    (found,) = store(facts.of_job, job_id)
    assert found.data["message"] == "a␀b \\ud800"
    assert found.data["list"] == ["␀"]
    assert found.data["at"] == str(job_id)
    assert len(found.data["stack"]) == facts.STACK_MAX + 1
    assert found.data["stack"].endswith("frame 4999\n")


def test_an_error_is_resolved_by_a_fact_or_by_its_jobs_completion(
    store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    job_id, other = submit(), submit()
    pod = a_pod()
    leases = {each.lease.job_id: each.lease for each in claim(pod.id)}
    store(facts.append, [an_error(job_id), an_error(other)])
    (error,) = store(facts.of_job, job_id)
    assert (error.is_resolved, error.resolved_by) == (False, None)
    over = Fact(type="lifecycle", subtype="error_resolved", job_id=job_id, resolves=error.id)
    store(facts.append, [over])
    error, resolving = store(facts.of_job, job_id)
    assert (error.is_resolved, error.resolved_by) == (True, resolving.id)
    assert resolving.is_resolved is None
    done = Finish(lease=leases[other], status=JobStatus.COMPLETED, result="1")
    assert store(jobs.finish, pod_id=pod.id, operations=[done])
    assert [f.is_resolved for f in store(facts.of_job, other)] == [True]


def test_the_newest_of_some_types_are_paged(store: Session, database: str) -> None:
    store(facts.append, [an_error(subtype="old")])
    move_clock(database, 2 * HOUR_S)
    store(facts.append, [an_error(subtype=f"e{n}") for n in range(3)])
    store(facts.append, [Fact(type="lifecycle", subtype="breaker_opened")])
    found = store(facts.page, since_s=HOUR_S)
    assert [f.subtype for f in found] == ["breaker_opened", "e2", "e1", "e0"]
    errors = store(facts.page, types=["error"], since_s=HOUR_S, limit=2)
    assert [f.subtype for f in errors] == ["e2", "e1"]
    rest = store(facts.page, types=["error"], since_s=9 * HOUR_S, before=errors[-1].id)
    assert [f.subtype for f in rest] == ["e0", "old"]


@pytest.mark.parametrize("change", ["UPDATE cortex.fact SET step = ''", "DELETE FROM cortex.fact"])
def test_facts_cannot_be_changed_or_deleted(database: str, change: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=r"cortex\.fact is append-only"):
        sql(database, change)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(as_runtime(database), change)


def test_a_call_is_booked_once(store: Session) -> None:
    job_id = new_id()
    cost = a_cost(job_id, "1")
    store(facts.append, [cost, cost])
    store(facts.append, [cost, a_cost(job_id, "2")])
    assert [f.amount for f in store(facts.of_job, job_id)] == [1, 2]


def test_costs_by_group_and_in_all(store: Session, database: str) -> None:
    spec = {"name": "researcher", "model": "m", "system": "s"}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="researcher", spec=spec, by="ana")
    agent_id = sql(database, "SELECT id FROM cortex.agent")[0]["id"]
    one, two = new_id(), new_id()
    store(facts.append, [a_cost(one, "9", tenant="old")])
    move_clock(database, 48 * HOUR_S)
    store(
        facts.append,
        [
            a_cost(one, "1.5", tenant="acme", agent_id=agent_id),
            a_cost(two, "0.25", step="a", data={"model": "other"}),
            a_cost(two, None, step="b", data={"model": "other"}),
        ],
    )

    def by(group: str) -> list[tuple[str | None, int, Decimal | None]]:
        groups, total = store(facts.costs, by=CostGroup(group), since_s=24 * HOUR_S)
        assert (total.calls, total.cost_usd) == (3, Decimal("1.75"))
        assert (total.input_tokens, total.output_tokens) == (30, 15)
        assert (total.unpriced_calls, total.again_calls) == (1, 0)
        return [(g.name, g.calls, g.cost_usd) for g in groups]

    cheap = Decimal("0.25")
    assert by("agent") == [("researcher", 1, Decimal("1.5")), ("", 2, cheap)]
    assert by("model") == [("scripted", 1, Decimal("1.5")), ("other", 2, cheap)]
    assert by("tenant") == [("acme", 1, Decimal("1.5")), ("default", 2, cheap)]
    assert by("job") == [(str(one), 1, Decimal("1.5")), (str(two), 2, cheap)]
    assert len(by("day")) == 1
    days, _ = store(facts.costs, by=CostGroup.DAY, since_s=72 * HOUR_S)
    assert [d.calls for d in days] == [3, 1]
    assert (days[0].name or "") > (days[1].name or "")
    groups, total = store(facts.costs, by=CostGroup.JOB, since_s=24 * HOUR_S, limit=1)
    assert (len(groups), total.calls) == (1, 3)


def test_agents_that_hardly_read_their_cached_prompts_are_found(
    store: Session, database: str
) -> None:
    """Only calls that could have read count: not the first of a job."""
    agents = {}
    for name in ("changing", "steady", "single"):
        store(specs.apply, SpecKind.AGENT, new_id=new_id(), name=name, spec={}, by="ana")
    for row in sql(database, "SELECT name, id FROM cortex.agent"):
        agents[row["name"]] = row["id"]

    def call(name: str, job: UUID, *, read: int, written: int, saved: str) -> Fact:
        usage = {"input_tokens": 100, "cache_read_tokens": read, "cache_write_tokens": written}
        data = {"usage": usage, "saved_usd": saved}
        return a_cost(job, "1", agent_id=agents[name], data=data)

    changing, steady = new_id(), new_id()
    made = [call("changing", changing, read=0, written=900, saved="-0.5") for _ in range(21)]
    made += [call("steady", steady, read=800, written=100, saved="2") for _ in range(30)]
    made += [call("single", new_id(), read=0, written=900, saved="-0.5") for _ in range(40)]
    store(facts.append, made[1:])
    assert store(specs.cache_misses) == []
    store(facts.append, made[:1])
    (missing,) = store(specs.cache_misses)
    assert (missing.name, missing.calls, missing.share) == ("changing", 20, 0.0)
    rows = {row.name: row for row in store(specs.agents_with_caching)}
    shown = {name: (row.cache_hit, row.cache_saved_usd) for name, row in rows.items()}
    assert shown["steady"] == (0.8, Decimal(60))
    assert shown["changing"] == (0.0, Decimal("-10.5"))
    others = store(specs.agents_with_caching, tenant="acme")
    assert [(row.name, row.cache_hit) for row in others] == [(name, None) for name in sorted(rows)]
    (version,) = store(specs.with_caching, store(specs.versions, SpecKind.AGENT, "steady"))
    assert (version.cache_hit, version.cache_saved_usd) == shown["steady"]


def test_costs_count_repeated_calls(store: Session) -> None:
    """Failed, cancelled and lost calls, and a kept one whose step was asked for once more."""
    one, two = new_id(), new_id()
    store(
        facts.append,
        [
            a_cost(one, "1", data={"outcome": "failed"}),
            a_cost(one, "2", data={"outcome": "kept"}),  # its commit was lost with its pod
            a_cost(one, "4", data={"outcome": "kept"}),
            a_cost(one, "8", step="turn-2"),
            a_cost(two, "16"),  # the same step, of another job
            a_cost(two, None, step="turn-2", data={"outcome": "lost", "estimated": True}),
        ],
    )
    _, total = store(facts.costs, by=CostGroup.MODEL, since_s=HOUR_S)
    assert (total.again_calls, total.again_usd, total.again_tokens) == (3, Decimal(3), 45)
    assert (total.again_unpriced_calls, total.estimated_calls) == (1, 1)


def test_costs_without_calls_are_zero(store: Session) -> None:
    groups, total = store(facts.costs, by=CostGroup.AGENT, since_s=HOUR_S)
    assert groups == []
    assert (total.calls, total.cost_usd, total.again_tokens) == (0, None, 0)
