"""Lists of jobs, in an order: a page of those that match a filter, for a bounded amount of work.

Jobs of the built-in schedules, two a minute, are only listed with their type or id.

What no index answers is found by reading jobs: a bounded number for one page, however many there
are. A page that is short for that reason says so, and the next one continues from there.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.job import DEFAULT_TENANT, UPKEEP, JobStatus
from cortex.domain.job_filter import JobCursor, JobFilter, like
from cortex.postgres.database import Database, Record
from cortex.store.jobs import ListedJob
from cortex.store.rows import rows_of

LOOKED_MAX: Final = 2_000
"""For one page; at worst 7 index entries for each of them, one of each state."""
AGENTS_MAX: Final = 20
"""More agents than this are no way in: their jobs are found by reading."""
IDS_MAX: Final = 10
ALL: Final = JobFilter()


@attrs.frozen(kw_only=True)
class JobPage:
    """Some jobs of a list."""

    jobs: list[ListedJob]
    next: JobCursor | None
    """Where the next page begins; None: there are no more."""
    is_short: bool
    """More may match: the page ends because the limit of jobs to read was reached."""


@attrs.frozen(kw_only=True)
class WayIn:
    """The index that leads to the jobs of a page; exactly one field is not None.

    A caller that reads page after page may find it once and pass it in: see `way_in`.
    """

    states: Sequence[JobStatus] | None = None
    agent_ids: Sequence[UUID] | None = None
    job_ids: Sequence[UUID] | None = None
    tenant: str | None = None


async def page(
    db: Database,
    which: JobFilter = ALL,
    *,
    before: JobCursor | None = None,
    limit: int = 50,
    way: WayIn | None = None,
) -> JobPage:
    """Return the newest matching jobs, older than `before`. Raises what `way_in` raises."""
    return await _page(db, "job_pages.page", which, place=before, limit=limit, way=way)


async def page_up(
    db: Database,
    which: JobFilter = ALL,
    *,
    after: JobCursor | None = None,
    limit: int = 50,
    way: WayIn | None = None,
) -> JobPage:
    """Return the matching jobs just above `after`, newest first; the oldest ones without it.

    `next` is where the page above begins: pass it in as `after`. Raises what `page` raises.
    """
    above = await _page(db, "job_pages.page_up", which, place=after, limit=limit, way=way)
    return attrs.evolve(above, jobs=above.jobs[::-1])


async def page_due(
    db: Database,
    which: JobFilter = ALL,
    *,
    after: JobCursor | None = None,
    limit: int = 50,
    way: WayIn | None = None,
) -> JobPage:
    """Return the matching jobs in RETRY due just after a place, the next one first.

    `at` of such a place is the job's due time. Without a place: those due first. Raises what `page`
    raises.
    """
    return await _page_due(db, which, place=after, is_up=False, limit=limit, way=way)


async def page_due_up(
    db: Database,
    which: JobFilter = ALL,
    *,
    before: JobCursor | None = None,
    limit: int = 50,
    way: WayIn | None = None,
) -> JobPage:
    """Return those just before a place, in the same order; without a place those due last.

    `next` is where the page above begins: pass it in as `before`. Raises what `page` raises.
    """
    above = await _page_due(db, which, place=before, is_up=True, limit=limit, way=way)
    return attrs.evolve(above, jobs=above.jobs[::-1])


async def way_in(db: Database, which: JobFilter) -> WayIn:
    """Find the index that leads to the fewest jobs that do not match.

    Runs one or more separate statements if the filter has ids or agents: the result does not
    include later jobs. Raises `UsageError` for many ids.
    """
    if which.id_suffixes:
        return WayIn(job_ids=await _ids(db, which.id_suffixes))
    is_few = bool(which.statuses) and not any(state.is_terminal for state in which.statuses)
    if which.agents and not is_few:
        rows = await db.fetch("specs.agent_ids_like", like(which.agents), AGENTS_MAX + 1)
        if len(rows) <= AGENTS_MAX:
            return WayIn(agent_ids=[row["id"] for row in rows])
    if which.tenant not in (None, DEFAULT_TENANT) and not is_few:
        return WayIn(tenant=which.tenant)
    return WayIn(states=which.statuses or _implied(which))


def _implied(which: JobFilter) -> tuple[JobStatus, ...]:
    """Return the states of the jobs that can match a filter without states."""
    if which.letter_patterns is not None or which.classes:
        return (JobStatus.FAILED,)
    if which.is_about_ends:
        return tuple(status for status in JobStatus if status.is_terminal)
    return tuple(JobStatus)


async def _page_due(
    db: Database,
    which: JobFilter,
    *,
    place: JobCursor | None,
    is_up: bool,
    limit: int,
    way: WayIn | None,
) -> JobPage:
    """Return a page in the order of reading, the nearest to its place first."""
    which = _own(db, which)
    if JobStatus.RETRY not in (which.statuses or _implied(which)):
        return JobPage(jobs=[], next=None, is_short=False)
    is_looked_for = attrs.evolve(which, states=()) != ALL or which.state_patterns is not None
    looked_max = LOOKED_MAX if is_looked_for else limit + 1
    if which.id_suffixes and way is None:
        way = await way_in(db, which)
    rows = await db.fetch(
        "job_pages.page_due",
        *(like(each) for each in _patterns(which)),
        like(which.pods),
        None if way is None else way.job_ids,
        *_span(which, place),
        is_up,
        looked_max,
        limit + 1,
        which.state_patterns,
        like(which.tags),
        which.tenant,
    )
    return _page_of(rows, at="next_retry_at", looked_max=looked_max, limit=limit)


async def _page(
    db: Database,
    query: str,
    which: JobFilter,
    *,
    place: JobCursor | None,
    limit: int,
    way: WayIn | None,
) -> JobPage:
    """Return a page in the order of reading, the nearest to its place first."""
    which = _own(db, which)
    if way is None:
        way = await way_in(db, which)
    looked_max = LOOKED_MAX if _is_looked_for(which, way) else limit + 1
    rows = await db.fetch(
        query,
        None if way.states is None else [state.value for state in way.states],
        way.agent_ids,
        way.job_ids,
        [state.value for state in which.statuses] or None,
        *(like(each) for each in _patterns(which)),
        *_span(which, place),
        looked_max,
        limit + 1,
        like(which.pods),
        which.state_patterns,
        None if which.types or which.is_about_letters else list(UPKEEP),
        like(which.tags),
        which.letter_patterns,
        [each.value for each in which.classes] or None,
        which.ended_before_s,
        which.ended_within_s,
        which.tenant,
        way.tenant,
    )
    return _page_of(rows, at="created_at", looked_max=looked_max, limit=limit)


def _own(db: Database, which: JobFilter) -> JobFilter:
    """Return the filter for the tenant to which the session keeps."""
    return which if which.tenant is not None else attrs.evolve(which, tenant=db.tenant)


def _span(which: JobFilter, place: JobCursor | None) -> tuple[object, ...]:
    """Return the range of creation times, and the place from which to read."""
    at = (None, None) if place is None else (place.id, place.at)
    made = (which.older_than_s, which.newer_than_s, which.created_after, which.created_before)
    return (*made, *at)


def _page_of(rows: Sequence[Record], *, at: str, looked_max: int, limit: int) -> JobPage:
    """Make a page of the rows; `at` is the column of its order."""
    fitting = [row for row in rows if row["id"] is not None]
    jobs = rows_of(ListedJob, fitting, why=None)
    if len(jobs) > limit:
        last = fitting[limit - 1]
        return JobPage(jobs=jobs[:limit], next=JobCursor(last["id"], last[at]), is_short=False)
    if rows[0]["looked_count"] < looked_max:
        return JobPage(jobs=jobs, next=None, is_short=False)
    return JobPage(jobs=jobs, next=JobCursor(rows[0]["last_id"], rows[0]["last_at"]), is_short=True)


async def _ids(db: Database, suffixes: Sequence[str]) -> list[UUID]:
    if len(suffixes) > IDS_MAX:
        raise UsageError(f"{len(suffixes)} ids in one filter are more than {IDS_MAX}")
    ids: list[UUID] = []
    for suffix in suffixes:
        if len(suffix) == 32:  # noqa: PLR2004 -- digits of an id
            ids.append(UUID(suffix))
        else:
            ids += [row["id"] for row in await db.fetch("jobs.ids_by_suffix", suffix)]
    return ids


def _is_looked_for(which: JobFilter, way: WayIn) -> bool:
    """Return whether some jobs of the way in may not match."""
    by_agent = bool(which.agents) and way.agent_ids is None
    by_state = bool(which.statuses) and way.states is None
    by_tenant = which.tenant is not None and way.tenant is None
    by_wait = which.state_patterns is not None
    others = (which.types, which.queues, which.tenants, which.tags, which.codes, which.pods)
    by_end = which.letter_patterns is not None or bool(which.classes) or which.is_about_ends
    return by_agent or by_tenant or by_state or by_wait or by_end or any(others)


def _patterns(which: JobFilter) -> tuple[Sequence[str], ...]:
    return (which.types, which.agents, which.queues, which.tenants, which.codes)
