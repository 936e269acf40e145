"""Edits that need more than was asked for."""

import pytest

from cortex.domain.errors import RejectedError
from cortex.postgres.session import Session
from tests.support.records.approvals import Askers


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


def test_an_edit_that_crosses_a_rules_threshold_is_refused(askers: Askers) -> None:
    request = askers.asked_below(500)
    with pytest.raises(RejectedError, match="makes refund CRITICAL, for which 2 people must"):
        askers.decide(request, edited='{"amount":500,"customer":"cus_88"}')
    row = askers.row(request)
    assert (row.status, row.version, row.edited_by) == ("PENDING", 1, None)
    ruling = askers.decide(request, edited='{"amount":499,"customer":"cus_88"}')
    assert ruling.outcome == "approved"
