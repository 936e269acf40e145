"""The orders of the list of jobs; each uses an index, so that all pages cost the same."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import attrs

from cortex.domain.job import JobStatus
from cortex.domain.job_filter import JobCursor, JobFilter, StateTerm
from cortex.store.jobs import ListedJob


class Order(Enum):
    """The value is shown above the list."""

    NEWEST = "newest first"
    OLDEST = "oldest first"
    DUE = "next due first"
    """Lists only jobs in RETRY."""


ORDERS: Final = tuple(Order)


def after(order: Order) -> Order:
    """Return the next order, wrapping around."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]


def listed(order: Order, which: JobFilter) -> JobFilter | None:
    """Return the part of a filter that an order lists; None if nothing can match."""
    if order is not Order.DUE:
        return which
    if which.statuses and JobStatus.RETRY not in which.statuses:
        return None
    in_retry = tuple(each for each in which.states if each.status is JobStatus.RETRY)
    return attrs.evolve(which, states=in_retry or (StateTerm(JobStatus.RETRY),))


def place_of(order: Order, row: ListedJob) -> JobCursor | None:
    """Return where the list continues beside a row; None if it no longer lists the row."""
    at = row.next_retry_at if order is Order.DUE else row.created_at
    return None if at is None else JobCursor(row.id, at)


def first_place(order: Order, rows: Sequence[ListedJob]) -> JobCursor | None:
    """Return the position of the first row; None if there is none."""
    return place_of(order, rows[0]) if rows else None
