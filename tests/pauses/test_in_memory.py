"""Tests of applications in memory refuse what a rule refuses, in the words of a submit."""

import json

import pytest

from cortex import Context, Singleton, Throttle, job
from cortex.domain.errors import InvalidValueError
from cortex.domain.job import Submission
from cortex.store import jobs
from cortex.testing import Cortex
from tests.support.life import Life
from tests.support.records.rows import new_id

RULE = Singleton("{customer}/{page}")


@job("exported", singleton=RULE)
async def exported(ctx: Context, customer: int, page: int = 1) -> None:
    """Do nothing."""


@job("reminded", throttle=Throttle("1m"))
async def reminded(ctx: Context) -> None:
    """Do nothing."""


@job("parent")
async def parent(ctx: Context) -> None:
    await ctx.call(reminded)


def test_both_refuse_a_payload_without_an_argument_of_the_key(clean: Life) -> None:
    clean.call(jobs.ensure_rules, {"exported": RULE})
    batch = [Submission(id=new_id(), type="exported", payload=json.dumps({"customer": 7}))]
    with pytest.raises(InvalidValueError) as refused:
        clean.call(jobs.submit, batch)
    with pytest.raises(InvalidValueError) as found:
        Cortex().run_sync(exported, customer=7)
    assert found.value.message == refused.value.message
    assert found.value.hint == refused.value.hint
    assert Cortex().run_sync(exported, customer=7, page=1).error is None


def test_a_job_of_a_type_with_a_rule_is_no_child_in_memory() -> None:
    run = Cortex().run_sync(parent)
    assert 'job type "reminded" has a throttle: its jobs cannot be children' in str(run.error)
    assert Cortex().run_sync(reminded).error is None
