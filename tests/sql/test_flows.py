"""Jobs of flows, submitted from plain SQL: their version, their limit, and what is refused."""

import asyncpg
import pytest

from cortex.postgres.session import Session
from cortex.store import specs
from cortex.store.specs import SpecKind
from tests.support.records.rows import as_runtime, job_row, submit
from tests.support.servers.postgres import sql

APPROVE = {"name": "a", "uses": "approve"}


def apply(store: Session, **fields: object) -> int:
    spec = {"name": "f", "steps": [APPROVE], **fields}
    version, _ = store(specs.apply, SpecKind.FLOW, name="f", spec=spec, by="test")
    return int(version)


def test_a_job_keeps_the_version_it_was_submitted_with(database: str, store: Session) -> None:
    apply(store, inputs={"a": {}})
    first = submit(database, "run_flow", {"flow": "f", "inputs": {"a": 1}})
    assert apply(store, inputs={"a": {}}, description="newer") == 2
    second = submit(database, "run_flow", {"flow": "f", "version": None})
    chosen = submit(database, "run_flow", {"flow": "f", "version": 1})
    assert job_row(database, first)["payload"] == '{"flow": "f", "inputs": {"a": 1}, "version": 1}'
    versions = [job_row(database, each)["payload"][-2] for each in (second, chosen)]
    assert versions == ["2", "1"]


def test_same_flow_applied_again_is_no_new_version(database: str, store: Session) -> None:
    assert [apply(store), apply(store), apply(store, description="x")] == [1, 1, 2]
    assert [each.version for each in store(specs.versions, SpecKind.FLOW, "f")] == [2, 1]
    facts = sql(database, "SELECT data FROM cortex.fact WHERE subtype = 'flow_applied'")
    assert len(facts) == 2


@pytest.mark.parametrize(
    "given, used", [(None, 2400), (3, 3), (2700, 2700)], ids=["its own", "shorter", "longest"]
)
def test_the_limit_of_the_flow_replaces_that_of_the_type(
    database: str, store: Session, given: int | None, used: int
) -> None:
    apply(store, limits={"timeout_ms": 2_399_001})
    job_id = submit(database, "run_flow", {"flow": "f"}, timeout_s=given)
    assert job_row(database, job_id)["timeout_s"] == used


def test_flow_without_a_limit_has_that_of_its_type(database: str, store: Session) -> None:
    apply(store)
    assert job_row(database, submit(database, "run_flow", {"flow": "f"}))["timeout_s"] == 1800
    with pytest.raises(asyncpg.CheckViolationError, match=r'2701 is above .* "run_flow": 2700'):
        submit(database, "run_flow", {"flow": "f"}, timeout_s=2701)


@pytest.mark.parametrize(
    "payload, message",
    [
        ("{}", 'a job of type "run_flow" needs a flow'),
        ('{"flow": "g"}', 'flow "g" does not exist'),
        ('{"flow": "f", "version": 2}', 'flow "f" version 2 does not exist'),
        ('{"flow": "f", "version": "1"}', 'flow "f" version 1 does not exist'),
        ('{"flow": {"a": 1}}', "does not exist"),
    ],
)
def test_an_unknown_flow_is_refused(
    database: str, store: Session, payload: str, message: str
) -> None:
    apply(store)
    with pytest.raises(asyncpg.PostgresError, match=message):
        sql(as_runtime(database), "SELECT cortex.submit_job('run_flow', $1::jsonb)", payload)
    assert sql(database, "SELECT count(*) AS n FROM cortex.job")[0]["n"] == 0


@pytest.mark.parametrize(
    "inputs, message",
    [
        ("null", 'inputs of flow "f" lack day, month'),
        ('{"day": null, "year": 1}', 'have the unknown name "year"; known: day, limit, month'),
        ('{"day": 1}', "lack month"),
        ("[1]", r"must be an object by their names, got \[1\]"),
    ],
)
def test_inputs_that_do_not_fit_the_flow_are_refused(
    database: str, store: Session, inputs: str, message: str
) -> None:
    required = {"required": True}
    apply(store, inputs={"month": required, "day": required, "limit": {"default": 10}})
    payload = f'{{"flow": "f", "inputs": {inputs}}}'
    with pytest.raises(asyncpg.CheckViolationError, match=message):
        sql(as_runtime(database), "SELECT cortex.submit_job('run_flow', $1::jsonb)", payload)
    submit(database, "run_flow", {"flow": "f", "inputs": {"day": None, "month": 1}})


def test_a_flow_without_inputs_takes_none(database: str, store: Session) -> None:
    apply(store)
    with pytest.raises(asyncpg.CheckViolationError, match='unknown name "a"; known: none'):
        submit(database, "run_flow", {"flow": "f", "inputs": {"a": 1}})
