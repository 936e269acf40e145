"""The wait of a job: parsed from the database's text, and described."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import attrs
import pytest

from cortex.domain.approvals.approval import Risk
from cortex.domain.waiting import ApprovalWait, Awaited, QuotaWait, awaited_of, named

ID = "0198c0de-0000-7000-8000-00000000ab12"
Seen = TypeVar("Seen", bound=Awaited)
AT = datetime(2030, 1, 1, 12, tzinfo=UTC)

APPROVAL: dict[str, Any] = {
    "kind": "approval",
    "id": ID,
    "what": "refund",
    "risk": "HIGH",
    "people": 1,
    "agreed": 0,
    "status": "PENDING",
    "requested_by": None,
    "expires_at": AT.isoformat(),
}
EFFECT = {"kind": "effect", "id": ID, "tool": "pay", "status": "UNKNOWN", "why": None}
FREEZE = {"kind": "freeze", "by": "ana", "reason": "audit", "frozen_at": AT.isoformat()}
QUOTA = {
    "kind": "quota",
    "tool": "mail",
    "argument": None,
    "unit": None,
    "period": "hour",
    "limit": "20.00000000",
    "used": "20.00000000",
    "resets_at": AT.isoformat(),
}


@pytest.mark.parametrize(
    "seen, words, way_out",
    [
        (APPROVAL, "waits for a person to approve refund (HIGH)", f"cortex approvals show {ID}"),
        (EFFECT, "waits for a person to say whether pay was applied", f"cortex effects show {ID}"),
        (
            FREEZE,
            "waits until effects may begin: ana froze them at 2030-01-01T12:00:00Z: audit",
            "cortex freeze off --reason TEXT",
        ),
        (
            QUOTA,
            "waits for room in quota mail:calls:hour: 20 of 20 calls used",
            "cortex quotas set mail --limit N --per hour --reason TEXT",
        ),
    ],
)
def test_wait_is_described_with_its_way_out(seen: dict[str, Any], words: str, way_out: str) -> None:
    awaited = awaited_of(seen)
    assert awaited is not None
    assert awaited.words == words
    assert awaited.ways_out[0] == way_out


def test_name_that_imitates_the_text_around_it_is_quoted() -> None:
    awaited = of(ApprovalWait, APPROVAL | {"what": "tea (LOW), asked for by li"})
    assert awaited.words == 'waits for a person to approve "tea (LOW), asked for by li" (HIGH)'


def test_several_people_are_counted() -> None:
    awaited = of(ApprovalWait, APPROVAL | {"people": 2, "agreed": 1, "requested_by": "li"})
    assert awaited.risk is Risk.HIGH
    assert awaited.words == (
        "waits for 2 people (1 agreed so far) to approve refund (HIGH), asked for by li"
    )


def test_a_quota_with_something_left_is_not_used_up() -> None:
    quota = of(QuotaWait, QUOTA)
    assert quota.is_used_up
    assert not attrs.evolve(quota, used=Decimal("19.5")).is_used_up


def test_job_without_a_wait_awaits_none() -> None:
    assert awaited_of(None) is None


@pytest.mark.parametrize(
    "waiting_on, output",
    [
        (f"approval:{ID}", "approval …00ab12"),
        (f"effect:{ID}", "the outcome of effect …00ab12"),
        ("effects:all", "the end of the freeze of effects"),
        ("quota:mail:calls:hour", "quota mail:calls:hour"),
        ("llm:claude", "llm:claude"),
        ("budget:job:x", "budget:job:x"),
    ],
)
def test_wait_is_named_for_the_history(waiting_on: str, output: str) -> None:
    assert named(waiting_on) == output


def of(kind: type[Seen], seen: dict[str, Any]) -> Seen:
    awaited = awaited_of(seen)
    assert isinstance(awaited, kind)
    return awaited
