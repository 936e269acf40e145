"""Edits that need more than was asked for."""

from typing import Any

import pytest

from cortex.domain.errors import RejectedError
from cortex.postgres.session import Session
from cortex.store import approvals
from tests.support.approvals import Askers, a_verdict


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_edit_that_crosses_a_rules_threshold_is_refused(
    askers: Askers, *, is_batch: bool
) -> None:
    request = askers.asked_below(500)
    wrong = a_verdict(request, edited='{"amount":500,"customer":"cus_88"}')
    decide: Any = approvals.decide_all if is_batch else approvals.decide
    with pytest.raises(RejectedError, match="makes refund CRITICAL, for which 2 people must"):
        askers.call(decide, [wrong] if is_batch else wrong)
    row = askers.row(request)
    assert (row.status, row.version, row.edited_by) == ("PENDING", 1, None)
    ruling = askers.decide(request, edited='{"amount":499,"customer":"cus_88"}')
    assert ruling.is_taken
