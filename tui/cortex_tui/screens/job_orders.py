"""Reads pages of the list of jobs in each of its orders."""

from typing import assert_never

import attrs

from cortex.domain.job_filter import JobCursor, JobFilter
from cortex.store.job_pages import JobPage
from cortex_tui.backend.jobs import StoreJobs
from cortex_tui.model.job_order import Order


async def below(
    jobs: StoreJobs, order: Order, which: JobFilter, place: JobCursor | None, *, limit: int
) -> JobPage:
    """Read the rows below a position, or the first ones; `next` is the position of the next page.

    Raises `CortexError`s.
    """
    match order:
        case Order.NEWEST:
            return await jobs.page(which, before=place, limit=limit)
        case Order.OLDEST:
            return _turned(await jobs.page_up(which, after=place, limit=limit))
        case Order.DUE:
            return await jobs.page_due(which, after=place, limit=limit)
        case _:
            assert_never(order)


async def above(
    jobs: StoreJobs, order: Order, which: JobFilter, place: JobCursor | None, *, limit: int
) -> JobPage:
    """Read the rows above a position, or the last ones; `next` is the position of the next page.

    Raises `CortexError`s.
    """
    match order:
        case Order.NEWEST:
            return await jobs.page_up(which, after=place, limit=limit)
        case Order.OLDEST:
            return _turned(await jobs.page(which, before=place, limit=limit))
        case Order.DUE:
            return await jobs.page_due_up(which, before=place, limit=limit)
        case _:
            assert_never(order)


def _turned(page: JobPage) -> JobPage:
    return attrs.evolve(page, jobs=page.jobs[::-1])
