"""A scripted person: decides approvals, lets some expire, resolves unknown effects.

Works through the store, as the command line does. The seed and the requesting job determine each
decision; the time of the request does not. Sometimes two people decide at once.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import asyncpg

from chaos.cluster.ledger import Ledger
from chaos.history import History
from chaos.people import enrol, person
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.approvals.vote import Vote, last_digits
from cortex.domain.clock import system_chance
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.domain.job import APPROVAL_NOTIFY, Submission
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.queries import sql
from cortex.store import approvals, effects, jobs
from cortex.store.effects import EffectRow

POLL_S: Final = 0.25
CALL_WITHIN_S: Final = 5.0
CROWD_MAX: Final = 20
"""At most this many at once; the others at the next poll."""

_EXPIRE: Final = """
    UPDATE cortex.approval SET expires_at = greatest(cortex.now(), created_at)
    WHERE id = $1 AND status = 'PENDING'
"""


class Decision(StrEnum):
    """The decision drawn for a request."""

    APPROVE = "approve"
    DENY = "deny"
    RACE = "race"
    """One person approves and another denies at the same time."""
    EXPIRE = "expire"
    """Nobody decides in time; one person tries just too late."""


SLOW_SHARE: Final = 0.5
"""This share of the requests is reminded of, by a runner and by a job, before it is decided."""
THINKS_S: Final = 2.0
_REMIND: Final = """
    UPDATE cortex.approval SET remind_at = cortex.now()
    WHERE id = $1 AND status = 'PENDING' AND remind_at > cortex.now()
"""

WEIGHTS: Final = {
    Decision.APPROVE: 12,
    Decision.DENY: 2,
    Decision.RACE: 4,
    Decision.EXPIRE: 2,
}


NAMES: Final = ("ann", "bob")


def reminder_of(approval: ApprovalRow, job_id: UUID) -> Submission:
    """Return the job by which a person has others reminded of a request."""
    payload = json.dumps({"approval": str(approval.id)})
    return Submission(id=job_id, type=APPROVAL_NOTIFY, payload=payload)


class Approver:
    def __init__(self, dsn: str, *, seed: int, ledger: Ledger, history: History) -> None:
        # As the owner, who also moves the times of requests.
        self._profile = Profile(dsn=dsn, role=None, connections_max=4, bound_s=CALL_WITHIN_S)
        self._seed = seed
        self._ledger = ledger
        self._history = history
        self._db: Database | None = None
        self._are_enrolled = False
        self._expired: set[UUID] = set()
        self._decides_s: dict[UUID, float] = {}
        """When requests are decided, by those that wait."""

    async def run(self) -> None:
        """Poll until cancelled; wait while the database is unavailable."""
        while True:
            try:
                if self._db is None:
                    self._db = await open_database(self._profile, rng=system_chance().rng)
                await self._enrol(self._db)
                await self._poll(self._db)
            except CortexError:
                pass  # the next poll finds it
            await asyncio.sleep(POLL_S)

    async def _enrol(self, db: Database) -> None:
        if not self._are_enrolled:
            await enrol(db, *NAMES)
            self._are_enrolled = True

    async def close(self) -> None:
        """Close its connections; the server may be gone."""
        if self._db is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALL_WITHIN_S):
                    await self._db.close()

    async def _poll(self, db: Database) -> None:
        waiting = await approvals.pending(db, limit=CROWD_MAX)
        unknown = await effects.page(db, statuses=[EffectStatus.UNKNOWN], limit=CROWD_MAX)
        async with asyncio.TaskGroup() as group:
            for approval in waiting:
                group.create_task(self._decide(db, approval))
            for effect in unknown:
                group.create_task(self._resolve(db, effect))

    # --- approvals

    async def _decide(self, db: Database, approval: ApprovalRow) -> None:
        now_s = self._history.now_s
        if approval.id not in self._decides_s:
            is_slow = self._dice_of(approval, "reminder").random() < SLOW_SHARE
            self._decides_s[approval.id] = now_s + (THINKS_S if is_slow else 0.0)
            if is_slow:
                await self._ask_again(db, approval)
        if now_s < self._decides_s[approval.id]:
            return
        decision = self._drawn(approval)
        match decision:
            case Decision.APPROVE | Decision.DENY:
                await self._vote(db, approval, "ann", is_approved=decision is Decision.APPROVE)
            case Decision.RACE:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._vote(db, approval, "ann", is_approved=True))
                    group.create_task(self._vote(db, approval, "bob", is_approved=False))
            case Decision.EXPIRE:
                await self._vote_too_late(db, approval, "bob")

    def _drawn(self, approval: ApprovalRow) -> Decision:
        dice = self._dice_of(approval, "decision")
        return dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def _dice_of(self, approval: ApprovalRow, what: str) -> random.Random:
        return random.Random(f"{what} on {approval.arguments_text} of {self._seed}")

    async def _ask_again(self, db: Database, approval: ApprovalRow) -> None:
        """Let a reminder be due, and remind by hand."""
        one = reminder_of(approval, system_chance().new_id())

        async def remind() -> str:
            await db.transact(lambda connection: connection.execute(_REMIND, approval.id))
            await jobs.submit(db, [one], by="ann")
            return "submitted"

        labels = {"approval": str(approval.id), "by": "ann", "job": str(one.id)}
        await self._operation("remind", labels, remind)

    async def _vote(
        self, db: Database, approval: ApprovalRow, by: str, *, is_approved: bool
    ) -> None:
        vote = Vote(
            approval_id=approval.id,
            is_approved=is_approved,
            by=person(by),
            seen=approval.digest,
            reason=None if is_approved else "by chance",
            confirm=last_digits(approval.id),
            channel="cli",
        )

        async def decide() -> str:
            (result,) = await approvals.decide(db, [vote])
            return result.outcome

        labels = {"approval": str(approval.id), "by": by, "approve": is_approved}
        await self._operation("decide", labels, decide)

    async def _vote_too_late(self, db: Database, approval: ApprovalRow, by: str) -> None:
        """Approve a request that expires just before the vote arrives, and is not closed yet.

        As a vote that was sent in time: the store would refuse it before it reaches the database.
        The request expires early, because the shortest time that jobs may name is a minute.
        """
        if approval.id in self._expired:
            return

        async def vote(connection: "asyncpg.Connection[asyncpg.Record]") -> str:
            await connection.fetch(sql("approvals.hold"), [approval.id])
            await connection.execute(_EXPIRE, approval.id)
            proof = person(by).document()
            own = (True, proof, approval.digest, None, "cli", None, None, None)
            outcome: str = await connection.fetchval(sql("approvals.decide"), approval.id, *own)
            return outcome

        async def decide() -> str:
            outcome = await db.transact(vote)
            self._expired.add(approval.id)
            return outcome

        labels = {"approval": str(approval.id), "by": by, "approve": True}
        await self._operation("decide", labels, decide)

    # --- unknown effects

    async def _resolve(self, db: Database, effect: EffectRow) -> None:
        """Resolve an effect by what the ledger holds."""
        applied = [a for a in self._ledger.applied() if a.key == str(effect.id)]
        resolution = Resolution.APPLIED if applied else Resolution.NOT_APPLIED
        result = str(applied[0].result) if applied else None

        async def resolve() -> str:
            await effects.resolve(
                db,
                effect.id,
                resolution,
                by=person("ann"),
                reason="as recorded in the ledger",
                result=result,
            )
            return resolution.value

        await self._operation(
            "resolve", {"effect": str(effect.id), "by": "ann", "said": resolution.value}, resolve
        )

    async def _operation(
        self, kind: str, labels: dict[str, Any], work: Callable[[], Awaitable[str]]
    ) -> None:
        """Carry it out as one operation of the history."""
        process = f"approver-{labels['by']}"
        self._history.add(process, kind, "invoke", **labels)
        try:
            outcome = await work()
        except OutcomeUnknownError as error:
            self._history.add(process, kind, "info", **labels, why=error.message)
        except CortexError as error:
            self._history.add(process, kind, "fail", **labels, why=error.message)
        else:
            self._history.add(process, kind, "ok", **labels, outcome=outcome)
