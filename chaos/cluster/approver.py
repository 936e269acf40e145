"""A person by script: decides approvals, lets some expire, says what became of unknown effects.

Goes the way of the command line, through the store. What it decides is drawn from the seed and
from whose request it is, not from when it comes. Now and then two people decide at once.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import asyncpg

from chaos.cluster.ledger import Ledger
from chaos.cluster.postgres import Postgres
from chaos.history import History
from cortex.domain.approval import ApprovalRow
from cortex.domain.clock import system_chance
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.postgres.database import Database, Profile, open_database
from cortex.store import approvals, effects
from cortex.store.approvals import Vote
from cortex.store.effects import EffectRow

LOOK_S: Final = 0.25
CALL_WITHIN_S: Final = 5.0
CROWD_MAX: Final = 20
"""So many at once; the others at the next look."""


class Decision(StrEnum):
    """What is drawn for a request."""

    APPROVE = "approve"
    DENY = "deny"
    RACE = "race"
    """One approves, another one denies, at once."""
    EXPIRE = "expire"


WEIGHTS: Final = {
    Decision.APPROVE: 12,
    Decision.DENY: 2,
    Decision.RACE: 4,
    Decision.EXPIRE: 2,
}


class Approver:
    """Runs until it is cancelled."""

    def __init__(
        self, dsn: str, *, seed: int, postgres: Postgres, ledger: Ledger, history: History
    ) -> None:
        self._profile = Profile(dsn=dsn, connections_max=4, bound_s=CALL_WITHIN_S)
        self._seed = seed
        self._postgres = postgres
        self._ledger = ledger
        self._history = history
        self._db: Database | None = None
        self._expired: set[UUID] = set()

    async def run(self) -> None:
        """Look again and again; a database that is away is waited for."""
        while True:
            try:
                if self._db is None:
                    self._db = await open_database(self._profile, rng=system_chance().rng)
                await self._look(self._db)
            except CortexError:
                pass  # the next look will find it
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Close its connections; the server may be gone."""
        if self._db is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALL_WITHIN_S):
                    await self._db.close()

    async def _look(self, db: Database) -> None:
        waiting = await approvals.pending(db, limit=CROWD_MAX)
        unknown = await effects.page(db, statuses=[EffectStatus.UNKNOWN], limit=CROWD_MAX)
        async with asyncio.TaskGroup() as group:
            for approval in waiting:
                group.create_task(self._decide(db, approval))
            for effect in unknown:
                group.create_task(self._resolve(db, effect))

    # --- approvals

    async def _decide(self, db: Database, approval: ApprovalRow) -> None:
        said = self._drawn(approval)
        match said:
            case Decision.APPROVE | Decision.DENY:
                await self._say(db, approval, "ann", is_approved=said is Decision.APPROVE)
            case Decision.RACE:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._say(db, approval, "ann", is_approved=True))
                    group.create_task(self._say(db, approval, "bob", is_approved=False))
            case Decision.EXPIRE:
                if await self._let_expire(approval):
                    # Too late, if only just: the pods have not looked at it yet.
                    await self._say(db, approval, "bob", is_approved=True)

    def _drawn(self, approval: ApprovalRow) -> Decision:
        whose = approval.arguments_text
        dice = random.Random(f"decision on {whose} of {self._seed}")
        return dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    async def _say(
        self, db: Database, approval: ApprovalRow, by: str, *, is_approved: bool
    ) -> None:
        verdict = Vote(
            approval_id=approval.id,
            is_approved=is_approved,
            by=by,
            credential=f"token:{by}",
            seen=approval.digest,
            channel="cli",
        )

        async def decide() -> str:
            ruling = await approvals.decide(db, verdict)
            if not ruling.is_taken:
                raise approvals.refusal(await approvals.show(db, approval.id), ruling)
            return ruling.outcome

        told = {"approval": str(approval.id), "by": by, "approve": is_approved}
        await self._operation("decide", told, decide)

    async def _let_expire(self, approval: ApprovalRow) -> bool:
        """Bring the instant nearer that nobody waits for here: the shortest one is a minute.

        Whether it has come just now.
        """
        if approval.id in self._expired:
            return False
        query = """
            UPDATE cortex.approval SET expires_at = greatest(cortex.now(), created_at)
            WHERE id = $1 AND status = 'PENDING'
        """
        try:
            await self._postgres.sql(query, approval.id)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return False
        self._expired.add(approval.id)
        self._history.add("approver", "expire", approval=str(approval.id))
        return True

    # --- unknown effects

    async def _resolve(self, db: Database, effect: EffectRow) -> None:
        """Look at the ledger, and say what is there."""
        applied = [a for a in self._ledger.applied() if a.key == str(effect.id)]
        said = Resolution.APPLIED if applied else Resolution.NOT_APPLIED
        result = str(applied[0].result) if applied else None

        async def resolve() -> str:
            await effects.resolve(
                db,
                effect.id,
                said,
                by="ann",
                reason="the ledger says so",
                result=result,
            )
            return said.value

        await self._operation(
            "resolve", {"effect": str(effect.id), "by": "ann", "said": said.value}, resolve
        )

    async def _operation(
        self, kind: str, told: dict[str, Any], work: Callable[[], Awaitable[str]]
    ) -> None:
        """Do it as one operation of the history."""
        process = f"approver-{told['by']}"
        self._history.add(process, kind, "invoke", **told)
        try:
            outcome = await work()
        except OutcomeUnknownError as error:
            self._history.add(process, kind, "info", **told, why=error.message)
        except CortexError as error:
            self._history.add(process, kind, "fail", **told, why=error.message)
        else:
            self._history.add(process, kind, "ok", **told, outcome=outcome)
