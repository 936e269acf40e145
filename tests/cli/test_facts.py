"""`cortex facts`: what is on record can be read, by what it is of, page by page."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Suspend
from cortex.postgres.database import Profile
from cortex.store import facts, retries, tasks
from cortex.store.facts import Fact
from cortex.view.phrases import NOTHING
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.kept_sessions import kept_session


def record(life: Life, **fields: Any) -> int:
    """Record a fact as the owner: those of people's acts are not for pods to write."""
    fact = Fact(**{"type": "error", "subtype": "overloaded", "source": "llm:m"} | fields)
    with kept_session(Profile(dsn=life.dsn, role=None)) as owner:
        (number,) = owner(facts.append, [fact])
    return int(number)


def found(cortex: Cortex, *arguments: str) -> list[int]:
    ended = cortex("facts", *arguments, "-o", "name")
    assert ended.code == 0, ended.err
    return [int(line) for line in ended.out.split()]


def test_facts_are_filtered_by_job_source_type_and_age(cortex: Cortex, life: Life) -> None:
    job, other = life.job(), life.job()
    first = record(life, job_id=job)
    move_clock(life.dsn, 7200)
    second = record(life, job_id=other, source="tool:x")
    cost = record(life, type="cost", subtype="model_call", job_id=job, amount_usd=Decimal("0.25"))
    change = record(life, type="lifecycle", subtype="breaker_opened")
    assert found(cortex) == [change, cost, second, first]
    assert found(cortex, "--job", str(job)[-6:]) == [cost, first]
    assert found(cortex, "--source", "llm:m") == [change, cost, first]
    assert found(cortex, "--source", "tool:x", "--job", str(job)) == []
    assert found(cortex, "--type", "error", "--type", "cost") == [cost, second, first]
    assert found(cortex, "--since", "1h") == [change, cost, second]
    assert found(cortex, "--job", str(job), "--since", "1h", "--type", "error") == []


@pytest.mark.parametrize("of", ["", "--source llm:m", "--job"])
def test_pages_show_each_fact_once(cortex: Cortex, life: Life, of: str) -> None:
    job = str(life.job())
    numbers = [record(life, job_id=UUID(job)) for _ in range(5)]
    arguments = [*of.split(), *([job] if of == "--job" else []), "--limit", "2"]
    seen = found(cortex, *arguments)
    while more := found(cortex, *arguments, "--before", str(seen[-1])):
        seen += more
    assert seen == numbers[::-1]
    unknown = cortex("facts", "--before", "999999")
    assert (unknown.code, unknown.out) == (0, "")
    assert "no fact matches" in unknown.err


def test_facts_show_person_reason_and_cost(cortex: Cortex, life: Life) -> None:
    job = life.job()
    record(life, job_id=job, step="turn-1", data={"class": "TRANSIENT_APP", "message": "\x1b[2Jno"})
    usage = {"input_tokens": 1200, "output_tokens": 34}
    record(
        life,
        type="cost",
        subtype="model_call",
        amount_usd=Decimal("0.25"),
        data={"outcome": "kept", "usage": usage},
    )
    change = {"by": "ana", "reason": "go on", "before": 1, "after": 5000}
    record(life, type="lifecycle", subtype="budget_raised", source="budget:b", data=change)
    terminal = cortex.on_terminal("facts", columns=160, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    head, raised, cost, error = (" ".join(line.split()) for line in terminal.text.splitlines()[:4])
    assert head == "id at type what source job step who / why amount"
    assert (
        f"lifecycle budget_raised budget:b {NOTHING} {NOTHING} by ana · 1 → 5,000: go on" in raised
    )
    assert f"cost model_call llm:m {NOTHING} {NOTHING} kept · 1.2k→34 $0.2500" in cost
    output = f"error overloaded llm:m …{str(job)[-6:]} turn-1 TRANSIENT_APP · ⟦U+001B⟧[2Jno"
    assert output in error


def test_json_output_has_every_field(cortex: Cortex, life: Life) -> None:
    number = record(life, data={"message": "busy", "nested": {"a": 1}}, trace_id="t", attempt=2)
    (row,) = cortex("facts", "--json").document["facts"]
    assert row["data"] == {"message": "busy", "nested": {"a": 1}}
    assert (row["id"], row["trace_id"], row["attempt"], row["is_resolved"]) == (
        number,
        "t",
        2,
        False,
    )


def test_empty_facts_print_a_message_and_invalid_options_are_refused(cortex: Cortex) -> None:
    assert "nothing is recorded" in cortex("facts").err
    for wrong in (("--type", "rumour"), ("--since", "yesterday"), ("--limit", "0")):
        assert cortex("facts", *wrong).code == 2
    assert cortex("facts", "--job", "abcdef").code == 3


def test_job_shows_lifecycle_facts_in_its_history(cortex: Cortex, life: Life) -> None:
    pod, job_id = life.pod(), life.job()
    budget = "tenant:default:usd:run"
    (claim,) = life.call(tasks.claim, pod_id=pod, types=["digest"], limit=1, config_id=1)
    ending = Suspend(
        lease=claim.lease, delay_s=600.0, is_counted=False, waiting_on=f"budget:{budget}"
    )
    life.call(tasks.suspend, pod_id=pod, operations=[ending])
    change = {"by": "bo", "reason": "more", "before": 1, "after": 5}
    raised = {"type": "lifecycle", "subtype": "budget_raised", "data": change}
    record(life, source=f"budget:{budget}", **raised)
    record(life, source="budget:tenant:other:usd:run", **raised)
    life.call(retries.retry_now, job_id, by="root", reason="\x1b[2Jit is back", new_id=new_id)
    record(
        life,
        type="lifecycle",
        subtype="job_resumed",
        source=None,
        job_id=job_id,
        data={"by": "ana", "reason": "r", "choice": "continue", "retried_as": "ab12"},
    )
    page = cortex("jobs", "show", str(job_id)).out
    history = [" ".join(line.split()[1:]) for line in page.split("history")[1].splitlines()]
    output = [line for line in history if line.startswith("·")]
    assert output == [
        f"· budget raised budget:{budget} by bo · 1 → 5: more",
        f"· retried now budget:{budget} by root: ⟦U+001B⟧[2Jit is back",
        "· job resumed by ana · choice continue · retried_as ab12: r",
    ]
    changes = cortex("jobs", "show", str(job_id), "--json").document["changes"]
    assert [each["subtype"] for each in changes] == ["budget_raised", "retried_now", "job_resumed"]
