"""What people do with jobs through a client: lists, cancellation, approvals, dead letters.

These need the rights of pods (`cortex_runtime`): they concern everybody's jobs.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.client.core import Core, job_id_of
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.approvals.vote import Vote
from cortex.domain.dead_letter import DeadLetter
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import JobCursor, parse_filter
from cortex.domain.people import Identity
from cortex.store import approvals, dead_letters, job_pages, jobs, tokens
from cortex.store.approvals import VoteResult
from cortex.store.jobs import Cancellation, ListedJob
from cortex.store.people import system_user
from cortex.store.tenants import Kind, require_own

LIMIT_MAX: Final = 1_000
CHANNEL: Final = "client"
PAGES_MAX: Final = 50
"""Sparse pages that are combined, as `cortex jobs ls` does."""
NAME_MAX: Final = 200


def checked_name(core: Core, by: str | None) -> str:
    """Return the person who acts: the given name, else the login."""
    if by is None:
        return core.rights.login
    if not 1 <= len(by) <= NAME_MAX or "\0" in by:
        raise UsageError(f"by {by!r:.80} is not a name of 1 to {NAME_MAX} characters")
    return by


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit!r:.80} is not 1 to {LIMIT_MAX}")
    return limit


async def cancel(core: Core, job_id: UUID, *, by: str | None, reason: str) -> Cancellation:
    core.require_all("cancel jobs")
    await require_own(core.db, Kind.JOB, [job_id])
    return await jobs.cancel(core.db, job_id, by=checked_name(core, by), reason=reason)


async def list_jobs(
    core: Core, filter_text: str, *, limit: int, before: UUID | None
) -> list[ListedJob]:
    core.require_all("list jobs")
    which = parse_filter(filter_text)
    left = checked_limit(limit)
    place = None if before is None else JobCursor(before)
    found: list[ListedJob] = []
    for _ in range(PAGES_MAX):
        page = await job_pages.page(core.db, which, before=place, limit=left)
        found += page.jobs
        left -= len(page.jobs)
        if left <= 0 or page.next is None:
            break
        place = page.next
    return found


async def list_approvals(core: Core, *, limit: int) -> list[ApprovalRow]:
    core.require_all("see approvals")
    return await approvals.pending(core.db, limit=checked_limit(limit))


async def decide(
    core: Core,
    approval: ApprovalRow | UUID | str,
    *,
    is_approved: bool,
    by: str | None,
    token: str | None,
    reason: str | None,
    confirm: str | None,
) -> VoteResult:
    """Decide one request: for the arguments of the given row, or for those that stand now.

    Decides the person of the token. Without one it is the person to whom the login belongs, or of
    the owner's login the operating-system user. `by` is a label beside that name.
    """
    core.require_all("decide approvals")
    shown = approval
    if not isinstance(shown, ApprovalRow):
        name = str(shown)
        shown = await approvals.show(core.db, await approvals.find(core.db, name))
    await require_own(core.db, Kind.APPROVAL, [shown.id])
    label = None if by is None else checked_name(core, by)
    vote = Vote(
        approval_id=shown.id,
        is_approved=is_approved,
        by=await _decider(core, token, label),
        seen=shown.digest,
        reason=reason,
        confirm=confirm,
        channel=CHANNEL,
    )
    (result,) = await approvals.decide(core.db, [vote])
    return result


async def _decider(core: Core, token: str | None, label: str | None) -> Identity:
    if token is None:
        return Identity.from_system(system_user(), label=label)
    found = await tokens.identity(core.db, token, label=label)
    if found is None:
        raise UsageError(
            "this token is not valid, or no longer", hint="create another: cortex tokens create"
        )
    return found


async def list_dead(core: Core, *, limit: int) -> list[DeadLetter]:
    core.require_all("see dead letters")
    return await dead_letters.page(core.db, limit=checked_limit(limit))


async def retry_dead(
    core: Core,
    job_ids: Sequence[UUID | str],
    *,
    by: str | None,
    reason: str,
    from_start: bool,
) -> list[UUID]:
    """Continue failed jobs in new ones; return these. Raises the first refusal.

    Those before the refused one are retried.
    """
    core.require_all("retry dead letters")
    ids = [job_id_of(each) for each in job_ids]
    await require_own(core.db, Kind.JOB, ids)
    wanted = dead_letters.resubmissions(ids, new_id=core.chance.new_id, rate=1_000)
    name = checked_name(core, by)
    done = await dead_letters.resubmit(
        core.db,
        wanted,
        by=name,
        credential=core.credential,
        reason=reason,
        from_start=from_start,
    )
    new: list[UUID] = []
    for each in done:
        if each.error is not None:
            raise each.error
        if each.retried_as is not None:
            new.append(each.retried_as)
    return new
