"""Tests of applications in memory refuse what a submit would refuse, in the same words."""

import json
from typing import Any

import pytest

from cortex import Concurrency, Context, Rate, job
from cortex.domain.errors import InvalidValueError
from cortex.testing import Cortex
from tests.limits.conftest import TYPE, Stage

LIMITS = (Concurrency(5, key="order.region"), Rate(9, per="day", unit="tokens", key="model"))


@job(TYPE, limits=LIMITS)
async def limited(ctx: Context, order: dict[str, Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize("order", [{}, {"region": None}, {"region": [1]}, {"region": ""}])
def test_both_refuse_an_order_without_its_key(stage: Stage, order: dict[str, Any]) -> None:
    stage.declare(*LIMITS)
    with pytest.raises(InvalidValueError) as refused:
        stage.submit(payload=json.dumps({"order": order}))
    with pytest.raises(InvalidValueError) as found:
        Cortex().run_sync(limited, order=order)
    assert found.value.message == refused.value.message
    assert found.value.hint == refused.value.hint


@pytest.mark.parametrize("region", ["eu", 7, True])
def test_both_take_an_order_with_its_key(stage: Stage, region: Any) -> None:
    stage.declare(*LIMITS)
    stage.submit(payload=json.dumps({"order": {"region": region}}))
    assert Cortex().run_sync(limited, order={"region": region}).error is None
