"""Clients that submit jobs under idempotency keys, and note what they were told.

Each try is an operation of the history: `ok` with the job's id, `fail` when it certainly did not
take place, `info` when its reply was lost; then it is asked for again under the same key.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import orjson
from attrs import frozen

from chaos.history import History
from cortex.domain.clock import system_chance
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.domain.job import Submission
from cortex.domain.submission import request_of
from cortex.store import idempotency, jobs
from cortex.store.database import Database, Profile, open_database

CLIENT_COUNT: Final = 4
PAUSE_S: Final = (0.1, 0.5)
AGAIN_SHARE: Final = 0.1
"""Of the acknowledged submissions, so many are repeated under their key."""
CALL_WITHIN_S: Final = 5.0


@frozen(kw_only=True)
class Order:
    """A job to be submitted, `at_s` after the load began."""

    at_s: float
    key: str
    job_type: str
    payload: dict[str, Any]


class Client:
    """Submits the orders of a run."""

    def __init__(self, dsn: str, *, history: History) -> None:
        self._profile = Profile(dsn=dsn, connections_max=CLIENT_COUNT, bound_s=CALL_WITHIN_S)
        self._history = history
        self._db: Database | None = None
        self.acknowledged: dict[str, UUID] = {}
        """The jobs by their keys."""

    async def submit_all(self, orders: Sequence[Order], *, dice: random.Random) -> None:
        """Submit each order when it is due, until each is acknowledged."""
        waiting = iter(sorted(orders, key=lambda order: order.at_s))
        began_s = self._history.now_s
        seeds = [dice.getrandbits(32) for _ in range(CLIENT_COUNT)]

        async def work(number: int) -> None:
            own_dice = random.Random(seeds[number])
            for order in waiting:
                await asyncio.sleep(began_s + order.at_s - self._history.now_s)
                await self._submit(f"client-{number + 1}", order, own_dice)

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENT_COUNT):
                group.create_task(work(number))

    async def close(self) -> None:
        """Close its connections; the server may be gone."""
        if self._db is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALL_WITHIN_S):
                    await self._db.close()

    async def _submit(self, process: str, order: Order, dice: random.Random) -> None:
        is_acknowledged = await self._try(process, order)
        while not is_acknowledged:
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            is_acknowledged = await self._try(process, order)
        if dice.random() < AGAIN_SHARE:
            await self._try(process, order)

    async def _try(self, process: str, order: Order) -> bool:
        """Submit once; whether it was acknowledged."""
        told = {"key": order.key}
        payload = orjson.dumps(order.payload)
        body = sha256(payload).hexdigest()[:16]
        self._history.add(process, "submit", "invoke", **told, body=body)
        try:
            if self._db is None:
                self._db = await open_database(self._profile, rng=system_chance().rng)
        except CortexError as error:
            self._history.add(process, "submit", "fail", **told, error=error.message)
            return False
        submission = Submission(
            id=system_chance().new_id(),
            type=order.job_type,
            payload=payload.decode(),
        )

        async def work(db: Database) -> UUID:
            await jobs.submit(db, [submission], by=process)
            return submission.id

        try:
            answer = await idempotency.guarded(
                self._db,
                order.key,
                operation="jobs.submit",
                request=request_of(submission),
                work=work,
            )
        except OutcomeUnknownError as error:
            self._history.add(process, "submit", "info", **told, error=error.message)
            return False
        except CortexError as error:
            self._history.add(process, "submit", "fail", **told, error=error.message)
            return False
        job_id = UUID(answer.response)
        self.acknowledged[order.key] = job_id
        self._history.add(
            process, "submit", "ok", **told, job=str(job_id), is_replayed=answer.is_replayed
        )
        return True
