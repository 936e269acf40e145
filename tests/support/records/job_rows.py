"""Jobs and what they did as the store returns them, made by tests: what is left out is None."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import ApprovalStatus, Risk
from cortex.domain.budget import Unit
from cortex.domain.effect import EffectStatus
from cortex.domain.job import JobStatus
from cortex.domain.waiting import awaited_of
from cortex.store.job_screen import (
    StepDetail,
    WatchedApproval,
    WatchedBudget,
    WatchedEffect,
    WatchedJob,
    WatchedMove,
)
from cortex.store.jobs import EndedAttempt, JobRow, ListedJob, ShownJob

T = TypeVar("T", bound=attrs.AttrsInstance)
Row = TypeVar("Row", bound=JobRow)
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
TYPES: Mapping[type, Mapping[str, type]] = {
    WatchedEffect: {"status": EffectStatus},
    WatchedApproval: {"status": ApprovalStatus, "risk": Risk},
    WatchedBudget: {"unit": Unit},
    WatchedMove: {"new": JobStatus, "previous": JobStatus},
    StepDetail: {"effect_status": EffectStatus},
}
"""Enums that tests write as text."""


def filled(kind: type[T], fields: Mapping[str, Any]) -> T:
    """Return a row of these fields, and None for the others."""
    enums = TYPES.get(kind, {})
    values = {
        name: enums[name](value) if name in enums and value is not None else value
        for name, value in fields.items()
    }
    return kind(**dict.fromkeys(each.name for each in attrs.fields(kind)) | values)


def a_listed_job(fields: Mapping[str, Any]) -> ListedJob:
    """Return a job of a list."""
    return _job(ListedJob, fields)


def a_shown_job(fields: Mapping[str, Any]) -> ShownJob:
    """Return a job in full."""
    return _job(ShownJob, {**fields, "budgets": ()})


def a_watched_job(fields: Mapping[str, Any]) -> WatchedJob:
    """Return a job as its screen shows it, with rows for what it did."""
    lists: tuple[tuple[str, type[attrs.AttrsInstance]], ...] = (
        ("attempts", EndedAttempt),
        ("effects", WatchedEffect),
        ("approvals", WatchedApproval),
        ("budgets", WatchedBudget),
    )
    did = {name: tuple(filled(kind, each) for each in fields.get(name, ())) for name, kind in lists}
    return _job(WatchedJob, {**fields, **did})


def a_detail(fields: Mapping[str, Any]) -> StepDetail:
    """Return what is known of a step."""
    moves = tuple(filled(WatchedMove, each) for each in fields.get("history", ()))
    return filled(StepDetail, {"payload": "{}", "trace_id": TRACE_ID, **fields, "history": moves})


def _job(kind: type[Row], fields: Mapping[str, Any]) -> Row:
    known = {each.name for each in attrs.fields(kind)}
    basic = {"id": UUID(int=1), "type": "digest", "checkpoint": {}, "attempt": 0, "now": NOW}
    given = {**basic, **{name: value for name, value in fields.items() if name in known}}
    given["status"] = JobStatus(given["status"])
    given["awaited"] = awaited_of(given.get("awaited"))
    return filled(kind, given)
