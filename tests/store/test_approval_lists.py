"""Requests for approval in lists: their order, their changes, and how one is found."""

from uuid import UUID

import pytest

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.errors import NotFoundError
from cortex.postgres.session import Session
from cortex.store import approvals
from tests.support.records.approvals import (
    Askers,
)


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


def test_pending_approvals_are_listed_by_risk_then_expiry(askers: Askers) -> None:
    made = [
        askers.asked(risk=risk, expires_s=expires_s)
        for risk, expires_s in (
            ("LOW", 100.0),
            ("CRITICAL", 900.0),
            ("MED", 300.0),
            ("HIGH", 200.0),
            ("MED", 200.0),
            ("CRITICAL", 800.0),
        )
    ]
    expected = [made[i].id for i in (5, 1, 3, 4, 2, 0)]
    assert [row.id for row in askers.call(approvals.pending)] == expected
    paged: list[UUID] = []
    while found := askers.call(approvals.pending, after=paged[-1] if paged else None, limit=2):
        paged += [row.id for row in found]
    assert paged == expected
    askers.decide(made[3])
    rest = askers.call(approvals.pending, after=made[3].id)
    assert [row.id for row in rest] == expected[3:], "also after one that was decided meanwhile"


def test_all_are_listed_newest_first(askers: Askers) -> None:
    made = [askers.asked() for _ in range(5)]
    askers.decide(made[1])
    askers.decide(made[2], is_approved=False, reason="no")
    newest = [each.id for each in reversed(made)]
    assert [row.id for row in askers.call(approvals.page)] == newest
    found = askers.call(approvals.page, before=made[3].id, limit=2)
    assert [row.id for row in found] == newest[2:4]
    found = askers.call(approvals.page, statuses=[ApprovalStatus.APPROVED])
    assert [row.id for row in found] == [made[1].id]


def test_changes_come_in_order(askers: Askers) -> None:
    since = askers.call(approvals.inbox).now
    request = askers.asked(risk="CRITICAL")
    askers.decide(request, by="li")
    askers.decide(request, by="kim")
    found = askers.call(approvals.changes, since=since)
    assert [(row.event, row.person) for row in found] == [
        ("asked", None),
        ("agreed", "li"),
        ("approved", "kim"),
    ]
    assert askers.call(approvals.changes, since=None) == []
    assert askers.call(approvals.inbox).count == 0


def test_a_request_is_found_by_the_end_of_its_id(askers: Askers) -> None:
    request = askers.asked()
    assert askers.call(approvals.find, request.id.hex[-6:]) == request.id
    with pytest.raises(NotFoundError, match="no approval ends with '0000abcd'"):
        askers.call(approvals.find, "0000abcd")
