"""Limits of agents: each counts the jobs of one agent, though all of them have one type."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from cortex.agent.spec import AgentSpec, parse_agents
from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.job import Claim
from cortex.domain.job_limits import Concurrency, JobLimit, Rate, of_agent
from cortex.store import budgets, limits, specs, tasks
from cortex.store import why as why_store
from cortex.store.specs import SpecKind
from cortex.view.why import why
from tests.limits.conftest import Stage
from tests.limits.test_tokens import a_call
from tests.support.records.rows import job_row, new_id
from tests.support.servers.postgres import sql

RUN_AGENT = "run_agent"
TOOLS = ("look_up",)
FILE = "name: {name}\nmodel: m\nsystem: s\nlimits:\n  jobs:\n  - {limit}\n"


def apply(stage: Stage, *names: str, tools: tuple[str, ...] = ()) -> None:
    for name in names:
        spec = AgentSpec(name=name, model="m", system="s", tools=tools).to_json()
        stage.call(specs.apply, SpecKind.AGENT, new_id=new_id(), name=name, spec=spec, by="ana")


def declare(stage: Stage, name: str, *declared: JobLimit) -> None:
    stage.call(limits.declare, {of_agent(name): declared})


def submit(stage: Stage, agent: str, **fields: Any) -> UUID:
    return stage.submit({"prompt": "x"}, type=RUN_AGENT, agent=agent, **fields)


def claim(stage: Stage) -> list[Claim]:
    stage.admit_all()
    return stage.call(tasks.claim, pod_id=stage.pod_id, types=[RUN_AGENT], tools=TOOLS, limit=100)


def agents_of(stage: Stage, claims: list[Claim]) -> Counter[str]:
    query = "SELECT name FROM cortex.agent WHERE id = $1"
    return Counter(sql(stage.dsn, query, each.agent_id)[0]["name"] for each in claims)


def test_each_agent_has_limits_of_its_own(stage: Stage) -> None:
    apply(stage, "clerk", "writer", "free")
    declare(stage, "clerk", Concurrency(2, key="tenant"))
    declare(stage, "writer", Concurrency(1))
    for agent in ("clerk", "writer", "free"):
        for tenant in ("acme", "globex"):
            for _ in range(3):
                submit(stage, agent, tenant=tenant)
    taken = claim(stage)
    assert agents_of(stage, taken) == {"clerk": 4, "writer": 1, "free": 6}
    stage.finish(*[each for each in taken if agents_of(stage, [each])["writer"]])
    assert agents_of(stage, claim(stage)) == {"writer": 1}

    (held, *_) = sql(stage.dsn, "SELECT job_id FROM cortex_worker.task WHERE state = 'HELD'")
    assert job_row(stage.dsn, held["job_id"])["waiting_on"] == "limit:run_agent"
    told = why(stage.call(why_store.facts_of, held["job_id"]))
    assert "in limit agent:" in told.sentence
    names = [each.name for each in stage.call(limits.page)]
    assert names == ["agent:clerk:running:tenant", "agent:writer:running"]


def test_limits_of_an_agent_hold_for_jobs_that_wait_and_run(stage: Stage) -> None:
    apply(stage, "clerk", "writer")
    for agent in ("clerk", "writer"):
        for _ in range(3):
            submit(stage, agent)
    begun = claim(stage)[:1]
    assert len(begun) == 1
    for _ in range(3):
        submit(stage, "clerk")
    declare(stage, "clerk", Concurrency(4))
    assert agents_of(stage, claim(stage)) == {"clerk": 1}  # three of it run
    declare(stage, "clerk", Concurrency(5), Rate(1, per="day"))
    assert agents_of(stage, claim(stage)) == {"clerk": 1}
    declare(stage, "clerk")
    assert agents_of(stage, claim(stage)) == {"clerk": 1}
    assert not sql(stage.dsn, "SELECT FROM cortex.limited_type")
    assert not stage.holds()


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_task_that_had_not_seen_the_limits_of_its_agent_waits_for_them(
    stage: Stage, tools: tuple[str, ...]
) -> None:
    apply(stage, "clerk", "free", tools=tools)
    job_id = submit(stage, "clerk")
    submit(stage, "free")
    declare(stage, "clerk", Concurrency(1))
    unseen = (
        "UPDATE cortex_worker.task SET state = 'READY', is_admitted = NULL, limit_keys = NULL "
        "WHERE job_id = $1"
    )
    sql(stage.dsn, unseen, job_id)
    submit(stage, "clerk")
    assert agents_of(stage, claim(stage)) == {"clerk": 1, "free": 1}
    assert stage.states()["HELD"] == 1


def test_calls_of_an_agent_share_its_tokens(stage: Stage) -> None:
    apply(stage, "clerk", "free")
    declare(stage, "clerk", Rate(1_000, per="minute", unit="tokens", key="model"))
    submit(stage, "clerk")
    submit(stage, "clerk")
    submit(stage, "free")
    taken = claim(stage)
    words = [stage.call(budgets.reserve, a_call(stage, each, 900)).word for each in taken]
    assert words == ["granted", "limit", "granted"]


def test_job_without_the_key_of_its_agent_is_refused(stage: Stage) -> None:
    apply(stage, "clerk", "writer")
    declare(stage, "clerk", Concurrency(1, key="folder"))
    submit(stage, "writer")
    with pytest.raises(RejectedError, match=r"payload.folder .* limit agent:clerk:running:folder"):
        submit(stage, "clerk")


@pytest.mark.parametrize(
    "limit, words",
    [
        ("{concurrency: 0}", "limits.jobs[0] is refused: Concurrency(0): 0 is not a limit"),
        ("{concurrency: 5, key: customer}", "key must be one of"),
        ("{rate: 5}", "has no per"),
        ("{rate: 5, per: week}", "per must be one of"),
        ("{rate: 5, per: day, key: model}", "has the key model"),
        ("{rate: 5, concurrency: 5}", "must have either concurrency or rate"),
        ("{concurrency: 5, per: day}", "is not per time"),
        ("{concurrency: 5}\n  - {concurrency: 6}", "limits.jobs[1] counts the same as jobs[0]"),
    ],
)
def test_limit_that_is_none_is_refused_with_its_line(limit: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_agents(FILE.format(name="clerk", limit=limit), "clerk.yaml")
    assert "clerk.yaml:" in refused.value.message
    assert words in refused.value.message


def test_agent_keeps_its_limits_when_it_is_stored() -> None:
    text = FILE.format(name="clerk", limit="{rate: 9, per: hour, unit: tokens, key: model}")
    (spec,) = parse_agents(text, "clerk.yaml")
    assert AgentSpec.from_json(spec.to_json()) == spec
    assert spec.limits.jobs[0].declared == Rate(9, per="hour", unit="tokens", key="model")
    assert AgentSpec(name="a", model="m", system="s").to_json()["limits"] == {}
