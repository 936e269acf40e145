"""Clients that submit jobs under idempotency keys, cancel some, and record the answers.

Each try is an operation of the history: `ok` with the job's id, `fail` if it certainly did not take
place, `info` if its reply was lost; then the client sends it again under the same key.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import orjson
from attrs import evolve, frozen

from chaos.cluster.command import Commands
from chaos.history import History
from chaos.workloads.messages import Publication, Publishers
from chaos.workloads.order import Cancel, Order, Repeat
from chaos.workloads.ruled import Ruled, Submitters
from chaos.workloads.signals import Senders, Sending
from cortex.domain.clock import system_chance
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    KeyReusedError,
    OutcomeUnknownError,
)
from cortex.domain.idempotency import request_digest
from cortex.domain.job import Submission
from cortex.domain.policy import request_of
from cortex.postgres.database import Database, Profile, open_database
from cortex.store import idempotency, jobs

CLIENT_COUNT: Final = 4
PAUSE_S: Final = (0.1, 0.5)
CALL_WITHIN_S: Final = 5.0


class Client:
    """Submits the orders of a run."""

    def __init__(self, dsn: str, *, history: History) -> None:
        self._profile = Profile(dsn=dsn, connections_max=CLIENT_COUNT, bound_s=CALL_WITHIN_S)
        self._history = history
        self._db: Database | None = None
        self._opening = asyncio.Lock()
        self.acknowledged: dict[str, UUID] = {}
        """The jobs by their keys."""

    async def submit_all(self, orders: Sequence[Order], *, dice: random.Random) -> None:
        """Submit each order when it is due until it is acknowledged; then repeat and cancel it."""
        waiting = iter(sorted(orders, key=lambda order: order.at_s))
        began_s = self._history.now_s
        seeds = [dice.getrandbits(32) for _ in range(CLIENT_COUNT)]

        async def work(number: int, people: asyncio.TaskGroup) -> None:
            own_dice = random.Random(seeds[number])
            for order in waiting:
                await asyncio.sleep(began_s + order.at_s - self._history.now_s)
                await self._order(f"client-{number + 1}", order, own_dice, people)

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENT_COUNT):
                group.create_task(work(number, group))

    async def publish_all(self, publications: Sequence[Publication], *, seed: int) -> None:
        """Publish messages by SQL, each when it is due."""
        publishers = Publishers(self._history, seed=seed)
        await publishers.publish_all(self._database, publications)

    async def signal_all(self, sendings: Sequence[Sending], *, seed: int) -> None:
        """Send signals by SQL, each when it is due."""
        await Senders(self._history, seed=seed).send_all(self._database, sendings)

    async def submit_ruled(self, ruled: Sequence[Ruled], *, command: Commands) -> None:
        """Submit jobs of types with rules, each when it is due."""
        submitters = Submitters(history=self._history, database=self._database, command=command)
        await submitters.submit_all(ruled)

    async def close(self) -> None:
        """Close its connections; the server may be gone."""
        if self._db is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALL_WITHIN_S):
                    await self._db.close()

    async def _order(
        self, process: str, order: Order, dice: random.Random, people: asyncio.TaskGroup
    ) -> None:
        job_id = await self._submit(process, order, dice)
        if job_id is not None:
            self.acknowledged[order.key] = job_id
            if order.cancel is not None:
                people.create_task(self._cancel(order.cancel, job_id, random.Random(order.key)))
        if order.repeat is Repeat.SAME:
            await self._submit(process, order, dice)
        elif order.repeat is Repeat.OTHER:
            other = {**order.payload, "is_other": True}
            await self._submit(process, evolve(order, payload=other), dice)

    async def _submit(self, process: str, order: Order, dice: random.Random) -> UUID | None:
        """Submit until there is an answer; None if it was refused permanently."""
        payload = orjson.dumps(order.payload).decode()

        async def submit(db: Database) -> dict[str, Any]:
            # A new id each time: only the key shows that it is the same job.
            submission = Submission(
                id=system_chance().new_id(), type=order.job_type, payload=payload
            )

            async def work(db: Database) -> UUID:
                await jobs.submit(db, [submission], by=process)
                return submission.id

            answer = await idempotency.guarded(
                db,
                order.key,
                operation="jobs.submit",
                digest=request_digest("jobs.submit", request_of(submission)),
                work=work,
            )
            return {"job": answer.response, "is_replayed": answer.is_replayed}

        operation = _Operation(
            process=process,
            kind="submit",
            labels={"key": order.key},
            request={"body": sha256(payload.encode()).hexdigest()[:16]},
            work=submit,
            final=KeyReusedError,
        )
        answer = await self._until_answered(operation, dice)
        return None if answer is None else UUID(answer["job"])

    async def _cancel(self, cancel: Cancel, job_id: UUID, dice: random.Random) -> None:
        await asyncio.sleep(cancel.after_s)

        async def work(db: Database) -> dict[str, Any]:
            done = await jobs.cancel(db, job_id, by=cancel.by, reason="no longer needed")
            return {"after": done.after.value}

        operation = _Operation(
            process=cancel.by,
            kind="cancel",
            labels={"job": str(job_id)},
            request={"by": cancel.by},
            work=work,
            final=ConflictError,
        )
        await self._until_answered(operation, dice)

    async def _until_answered(
        self, operation: "_Operation", dice: random.Random
    ) -> dict[str, Any] | None:
        """Try until it is done, and return the answer; None if it was refused permanently."""
        while True:
            note = partial(self._history.add, operation.process, operation.kind)
            labels = operation.labels
            note("invoke", **labels, **operation.request)
            try:
                answer = await operation.work(await self._database())
            except OutcomeUnknownError as error:
                note("info", **labels, error=error.message)
            except CortexError as error:
                note("fail", **labels, code=error.code, error=error.message)
                if isinstance(error, operation.final):
                    return None
            else:
                note("ok", **labels, **answer)
                return answer
            await asyncio.sleep(dice.uniform(*PAUSE_S))

    async def _database(self) -> Database:
        async with self._opening:
            if self._db is None:
                self._db = await open_database(self._profile, rng=system_chance().rng)
            return self._db


@frozen(kw_only=True)
class _Operation:
    """An operation that is repeated until it is answered."""

    process: str
    kind: str
    labels: dict[str, Any]
    """In each of its events."""
    request: dict[str, Any]
    """In addition, in the event of the request."""
    work: Callable[[Database], Awaitable[dict[str, Any]]]
    final: type[CortexError]
    """The refusal that counts as an answer."""
