"""The users of the pods: clients that submit the plan's jobs, and a person who decides."""

import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import orjson
import trio

from chaos.cluster.approver import SLOW_SHARE, WEIGHTS, Decision, reminder_of
from chaos.people import enrol, person
from chaos.sim.host import Scene
from chaos.sim.machine import Machine
from chaos.sim.outside import Ledger
from chaos.workloads.program import Program
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.approvals.vote import Vote, last_digits
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError, OutcomeUnknownError, UnavailableError
from cortex.domain.idempotency import request_digest
from cortex.domain.job import Submission
from cortex.domain.policy import request_of
from cortex.postgres.bridge import Port
from cortex.postgres.database import Database, Profile
from cortex.store import approvals, effects, idempotency, jobs
from cortex.store.effects import EffectRow

PAUSE_S: Final = (0.2, 2.0)
AGAIN_SHARE: Final = 0.2
"""This share of acknowledged submissions is repeated under their key."""
POLL_S: Final = (10.0, 200.0)
THINKS_S: Final = (0.0, 300.0)
PAGE_MAX: Final = 20
NAMES: Final = ("ann", "bob")


class People:
    """They share one machine; only faults of Postgres affect it."""

    def __init__(self, world: Scene, machine: Machine, *, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._machine = machine
        self._dice = random.Random(f"people {world.seed}")
        self._port: Port
        self.is_all_submitted = False
        self._hours = trio.CancelScope()

    async def live(self) -> None:
        """Submit and decide until they leave."""
        self._machine.inhabit()
        profile = Profile(dsn=self._world.server.dsn, connections_max=4, bound_s=5.0)
        async with self._machine.open_port(profile, rng=self._machine.chance.rng) as self._port:
            with self._hours:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._decide_all)
                    await self._submit_all()

    def leave(self) -> None:
        """They have nothing more to do."""
        self._hours.cancel()

    async def _submit_all(self) -> None:
        plan = self._world.plan
        async with trio.open_nursery() as nursery:
            for program, at_s in zip(plan.programs, plan.submitted_s, strict=True):
                dice = random.Random(f"client {program.key}")
                nursery.start_soon(self._submit, program, at_s, dice)
        self.is_all_submitted = True

    async def _submit(self, program: Program, at_s: float, dice: random.Random) -> None:
        await self._world.sleep(at_s)
        while await self._try(program) is not None:
            await self._world.sleep(dice.uniform(*PAUSE_S))
        if dice.random() < AGAIN_SHARE:
            await self._try(program)

    async def _try(self, program: Program) -> CortexError | None:
        payload = orjson.dumps(program.payload())
        submission = Submission(
            id=self._machine.chance.new_id(), type="chaos_program", payload=payload.decode()
        )

        async def work(db: Database) -> UUID:
            await jobs.submit(db, [submission], by="client-1")
            return submission.id

        async def submit() -> dict[str, Any]:
            answer = await self._port(
                idempotency.guarded,
                program.key,
                operation="jobs.submit",
                digest=request_digest("jobs.submit", request_of(submission)),
                work=work,
            )
            return {"job": str(answer.response), "is_replayed": answer.is_replayed}

        body = sha256(payload).hexdigest()[:16]
        key = {"key": program.key}
        return await self._operation("client-1", "submit", key, submit, body=body)

    async def _decide_all(self) -> None:
        handled: set[UUID] = set()
        is_enrolled = False
        async with trio.open_nursery() as nursery:
            while True:
                await self._world.sleep(self._dice.uniform(*POLL_S))
                try:
                    if not is_enrolled:
                        await self._port(enrol, *NAMES)
                        is_enrolled = True
                    waiting = await self._port(approvals.pending, limit=PAGE_MAX)
                    unknown = await self._port(
                        effects.page, statuses=[EffectStatus.UNKNOWN], limit=PAGE_MAX
                    )
                except CortexError:
                    continue  # the next poll finds it
                for approval in waiting:
                    if approval.id not in handled:
                        handled.add(approval.id)
                        nursery.start_soon(self._decide, approval)
                for effect in unknown:
                    nursery.start_soon(self._resolve, effect)

    async def _decide(self, approval: ApprovalRow) -> None:
        dice = random.Random(f"decision {approval.arguments_text} {self._world.seed}")
        decision = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        thinks_s = dice.uniform(*THINKS_S)
        if dice.random() < SLOW_SHARE:
            await self._ask_again(approval)
        await self._world.sleep(thinks_s)
        match decision:
            case Decision.APPROVE | Decision.DENY:
                await self._vote(approval, "ann", is_approved=decision is Decision.APPROVE)
            case Decision.RACE:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._approve, approval, "ann")
                    nursery.start_soon(self._deny, approval, "bob")
            case Decision.EXPIRE:
                pass  # its hour passes

    async def _ask_again(self, approval: ApprovalRow) -> None:
        one = reminder_of(approval, self._machine.chance.new_id())

        async def remind() -> dict[str, Any]:
            await self._port(jobs.submit, [one], by="ann")
            return {"job": str(one.id)}

        await self._operation("approver-ann", "remind", {"approval": str(approval.id)}, remind)

    async def _approve(self, approval: ApprovalRow, by: str) -> None:
        await self._vote(approval, by, is_approved=True)

    async def _deny(self, approval: ApprovalRow, by: str) -> None:
        await self._vote(approval, by, is_approved=False)

    async def _vote(self, approval: ApprovalRow, by: str, *, is_approved: bool) -> None:
        vote = Vote(
            approval_id=approval.id,
            is_approved=is_approved,
            by=person(by),
            seen=approval.digest,
            reason=None if is_approved else "by chance",
            confirm=last_digits(approval.id),
            channel="cli",
        )

        async def decide() -> dict[str, Any]:
            (result,) = await self._port(approvals.decide, [vote])
            return {"outcome": result.outcome}

        labels = {"approval": str(approval.id), "by": by, "approve": is_approved}
        who = f"approver-{by}"
        while isinstance(await self._operation(who, "decide", labels, decide), UnavailableError):
            await self._world.sleep(self._dice.uniform(*PAUSE_S))

    async def _resolve(self, effect: EffectRow) -> None:
        """Resolve an effect by what the ledger holds."""
        applied = [a for a in self._ledger.applied if a.key == str(effect.id)]
        resolution = Resolution.APPLIED if applied else Resolution.NOT_APPLIED

        async def resolve() -> dict[str, Any]:
            await self._port(
                effects.resolve,
                effect.id,
                resolution,
                by=person("ann"),
                reason="as recorded in the ledger",
                result="1" if applied else None,
            )
            return {"outcome": resolution.value}

        labels = {"effect": str(effect.id), "by": "ann", "said": resolution.value}
        await self._operation("approver-ann", "resolve", labels, resolve)

    async def _operation(
        self,
        process: str,
        kind: str,
        labels: dict[str, Any],
        work: Callable[[], Awaitable[dict[str, Any]]],
        **request: Any,
    ) -> CortexError | None:
        """Carry it out as one operation of the history; return why its success is uncertain."""
        note = self._world.note
        note(process, kind, "invoke", **labels, **request)
        try:
            answer = await work()
        except CortexError as error:
            is_unknown = isinstance(error, OutcomeUnknownError)
            note(process, kind, "info" if is_unknown else "fail", **labels, why=error.message)
            return error
        note(process, kind, "ok", **labels, **answer)
        return None
