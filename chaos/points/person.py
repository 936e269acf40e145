"""A person who decides the approvals of a trial's job, and resolves unknown effects by the ledger.

Works through the store, as the command line does.
"""

import asyncio
import contextlib
from typing import Final

from chaos.people import enrol, person
from chaos.points.bench import Trial
from chaos.points.programs import Program
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.approvals.vote import Vote, last_digits
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError
from cortex.store import approvals, effects
from cortex.store.effects import EffectRow

POLL_S: Final = 0.1
NAME: Final = "ann"
_EXPIRE: Final = """
    UPDATE cortex.approval SET expires_at = greatest(cortex.now(), created_at)
    WHERE status = 'PENDING' AND expires_at > cortex.now()
"""
"""The shortest time to decide in is a minute."""


_REMINDED: Final = "SELECT FROM cortex.outbox WHERE topic = 'approval.reminder' LIMIT 1"


async def attend(trial: Trial, program: Program) -> None:
    """Poll until cancelled."""
    while True:
        with contextlib.suppress(CortexError):  # the next poll finds what is left
            await enrol(trial.db, NAME)
            await _poll(trial, program)
        await asyncio.sleep(POLL_S)


async def _poll(trial: Trial, program: Program) -> None:
    if program.person == "lets it expire":
        await trial.sql(_EXPIRE)
    elif program.person == "looks on":
        return
    elif program.person == "agrees" or await trial.sql(_REMINDED):
        for request in await approvals.pending(trial.db):
            await _agree(trial, request)
    if not program.may_wait_for_people:
        for effect in await effects.page(trial.db, statuses=[EffectStatus.UNKNOWN]):
            await _resolve(trial, effect)


async def _agree(trial: Trial, request: ApprovalRow) -> None:
    vote = Vote(
        approval_id=request.id,
        is_approved=True,
        by=person(NAME),
        seen=request.digest,
        confirm=last_digits(request.id),
        channel="cli",
    )
    await approvals.decide(trial.db, [vote])


async def _resolve(trial: Trial, effect: EffectRow) -> None:
    applied = [each for each in trial.bench.ledger.applied() if each.key == str(effect.id)]
    await effects.resolve(
        trial.db,
        effect.id,
        Resolution.APPLIED if applied else Resolution.NOT_APPLIED,
        by=person(NAME),
        reason="as recorded in the ledger",
        result=str(applied[0].result) if applied else None,
    )
