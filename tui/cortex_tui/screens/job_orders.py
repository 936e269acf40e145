"""The orders of the list of jobs: each goes by an index, so that any page costs the same."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import attrs

from cortex.domain.job_filter import JobFilter, JobPlace
from cortex.store.job_pages import JobPage
from cortex_tui.backend.protocol import JobRow, Jobs


class Order(Enum):
    """The value is told above the list."""

    NEWEST = "newest first"
    OLDEST = "oldest first"


ORDERS: Final = tuple(Order)


def after(order: Order) -> Order:
    """Return the next one, around the end."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]


def place_of(row: JobRow) -> JobPlace:
    """Return where the list goes on beside a row."""
    return JobPlace(row["id"], row["created_at"])


def first_place(rows: Sequence[JobRow]) -> JobPlace | None:
    """Return the place of the first row; None: there is none."""
    return place_of(rows[0]) if rows else None


async def below(
    jobs: Jobs, order: Order, which: JobFilter, place: JobPlace | None, *, limit: int
) -> JobPage:
    """Read the rows just below a place, or the first ones; `next` is the place of the page below.

    Raises `CortexError`s.
    """
    if order is Order.NEWEST:
        return await jobs.page(which, before=place, limit=limit)
    return _turned(await jobs.page_up(which, after=place, limit=limit))


async def above(
    jobs: Jobs, order: Order, which: JobFilter, place: JobPlace | None, *, limit: int
) -> JobPage:
    """Read the rows just above a place, or the last ones; `next` is the place of the page above.

    Raises `CortexError`s.
    """
    if order is Order.NEWEST:
        return await jobs.page_up(which, after=place, limit=limit)
    return _turned(await jobs.page(which, before=place, limit=limit))


def _turned(page: JobPage) -> JobPage:
    return attrs.evolve(page, jobs=page.jobs[::-1])
