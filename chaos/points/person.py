"""Somebody who decides what the job of a trial asks for, and looks at the ledger when nobody knows.

Goes the way of the command line, through the store.
"""

import asyncio
import contextlib
from typing import Final

from chaos.points.bench import Trial
from chaos.points.programs import Program
from cortex.domain.approval import ApprovalRow
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError
from cortex.store import approvals, effects
from cortex.store.approvals import Vote
from cortex.store.effects import EffectRow

LOOK_S: Final = 0.1
NAME: Final = "ann"
_EXPIRE: Final = """
    UPDATE cortex.approval SET expires_at = greatest(cortex.now(), created_at)
    WHERE status = 'PENDING' AND expires_at > cortex.now()
"""
"""The shortest time to decide in is a minute."""


async def attend(trial: Trial, program: Program) -> None:
    """Look again and again, until cancelled."""
    while True:
        with contextlib.suppress(CortexError):  # the next look will find what is left
            await _look(trial, program)
        await asyncio.sleep(LOOK_S)


async def _look(trial: Trial, program: Program) -> None:
    if program.person == "agrees":
        for request in await approvals.pending(trial.db):
            await _agree(trial, request)
    else:
        await trial.sql(_EXPIRE)
    if not program.may_wait_for_people:
        for effect in await effects.page(trial.db, statuses=[EffectStatus.UNKNOWN]):
            await _tell(trial, effect)


async def _agree(trial: Trial, request: ApprovalRow) -> None:
    verdict = Vote(
        approval_id=request.id,
        is_approved=True,
        by=NAME,
        credential=f"token:{NAME}",
        seen=request.digest,
        channel="cli",
    )
    await approvals.decide(trial.db, verdict)


async def _tell(trial: Trial, effect: EffectRow) -> None:
    applied = [each for each in trial.bench.ledger.applied() if each.key == str(effect.id)]
    await effects.resolve(
        trial.db,
        effect.id,
        Resolution.APPLIED if applied else Resolution.NOT_APPLIED,
        by=NAME,
        reason="the ledger says so",
        result=str(applied[0].result) if applied else None,
    )
