"""The submits of a run to job types with rules: several at once with the same key, in many ways.

Each try is an operation of the history: `ok` with the jobs that it got, `fail` if it certainly did
not take place, `info` if its reply was lost; then it is repeated under the same ids.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import orjson
from attrs import frozen

from chaos.cluster.command import Commands
from chaos.history import History
from chaos.workloads.rules import PREFIX, Rule
from cortex.domain.clock import system_chance
from cortex.domain.errors import ConflictError, CortexError, OutcomeUnknownError
from cortex.domain.job import Submission
from cortex.postgres.database import Connection, Database
from cortex.store import jobs

BURSTS_PER_S: Final = 0.8
BURST: Final = (2, 4)
BURST_S: Final = (0.0, 0.5)
"""How far the submits of a burst are apart at most: half of them come at the same instant."""
BATCH: Final = 3
"""How many jobs of one key are submitted in one statement."""
TENANTS: Final = {1: None, 2: None, 3: "east"}
"""The customers, who are the keys, and their tenants."""
PAUSE_S: Final = (0.1, 0.5)
CONFLICT: Final = 5
"""The exit code of a command that was refused because of another job."""


class Way(StrEnum):
    """How jobs are submitted."""

    STORE = "store"
    """As HTTP and clients do."""
    SQL = "sql"
    """By plain SQL."""
    BATCH = "batch"
    """Several of one key in one statement."""
    COMMAND = "command"
    """By the command line."""


WAYS: Final = {Way.STORE: 5, Way.SQL: 3, Way.BATCH: 2, Way.COMMAND: 1}


@frozen(kw_only=True)
class Ruled:
    """One submit."""

    at_s: float
    number: int
    rule: Rule
    customer: int
    way: Way

    def payloads(self) -> list[str]:
        """Return the payload of each of its jobs."""
        count = BATCH if self.way is Way.BATCH else 1
        return [
            orjson.dumps({"customer": self.customer, "number": BATCH * self.number + n}).decode()
            for n in range(count)
        ]


def draw_ruled(seed: int, *, duration_s: float, bursts: int | None = None) -> tuple[Ruled, ...]:
    """Draw bursts of submits with one key each; the rules take turns."""
    dice = random.Random(f"rules of {seed}")
    rules = dice.sample(list(Rule), len(Rule))
    drawn: list[Ruled] = []
    for number in range(round(duration_s * BURSTS_PER_S) if bursts is None else bursts):
        at_s, apart_s = dice.uniform(0, duration_s), dice.choice(BURST_S)
        customer = dice.choice(list(TENANTS))
        ways = [way for way in WAYS if way is not Way.COMMAND or TENANTS[customer] is None]
        drawn += [
            Ruled(
                at_s=at_s + dice.uniform(0, apart_s),
                number=len(drawn) + n,
                rule=rules[number % len(rules)],
                customer=customer,
                way=dice.choices(ways, [WAYS[way] for way in ways])[0],
            )
            for n in range(dice.randint(*BURST))
        ]
    return tuple(drawn)


@frozen(kw_only=True)
class Submitters:
    """Submit what a run has drawn."""

    history: History
    database: Callable[[], Awaitable[Database]]
    command: Commands

    async def submit_all(self, drawn: Sequence[Ruled]) -> None:
        """Submit each when it is due, until it is answered."""
        began_s = self.history.now_s

        async def work(one: Ruled) -> None:
            await asyncio.sleep(began_s + one.at_s - self.history.now_s)
            await self._until_answered(one)

        async with asyncio.TaskGroup() as group:
            for each in drawn:
                group.create_task(work(each))

    async def _until_answered(self, one: Ruled) -> None:
        dice = random.Random(f"pauses of {one}")
        ids = [system_chance().new_id() for _ in one.payloads()]
        while not await self._try(one, ids):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(dice.uniform(*PAUSE_S))

    async def _try(self, one: Ruled, ids: list[UUID]) -> bool:
        """Try once; whether it was answered."""
        process = f"customer-{one.customer}"
        labels = {"number": one.number, "type": one.rule.job_type, "customer": one.customer}
        self.history.add(process, "ruled", "invoke", **labels, way=one.way)
        try:
            done = await self._submit(one, ids)
        except OutcomeUnknownError as error:
            self.history.add(process, "ruled", "info", **labels, why=error.message)
            return False
        except CortexError as error:
            why = {"code": error.code, "why": error.message}
            self.history.add(process, "ruled", "fail", **labels, **why)
            return isinstance(error, ConflictError)
        self.history.add(process, "ruled", "ok", **labels, jobs=[str(each) for each in done])
        return True

    async def _submit(self, one: Ruled, ids: list[UUID]) -> list[UUID]:
        """Return the jobs that the submits stand for."""
        match one.way:
            case Way.COMMAND:
                return [await self._by_command(one)]
            case Way.SQL:
                return [await self._by_sql(one, ids[0])]
            case Way.STORE | Way.BATCH:
                batch = [
                    Submission(
                        id=job_id,
                        type=one.rule.job_type,
                        payload=payload,
                        tenant=TENANTS[one.customer],
                    )
                    for job_id, payload in zip(ids, one.payloads(), strict=True)
                ]
                done = await jobs.submit(await self.database(), batch)
                return [done.job_of(job_id) for job_id in ids]

    async def _by_sql(self, one: Ruled, job_id: UUID) -> UUID:
        arguments = (one.rule.job_type, one.payloads()[0], TENANTS[one.customer], job_id)

        async def work(connection: Connection) -> UUID:
            query = "SELECT cortex.submit_job($1, $2::jsonb, tenant => $3, id => $4)"
            return UUID(str(await connection.fetchval(query, *arguments)))

        return await (await self.database()).transact(work)

    async def _by_command(self, one: Ruled) -> UUID:
        payload: dict[str, Any] = orjson.loads(one.payloads()[0])
        pairs = [f"{name}={value}" for name, value in payload.items()]
        key = ("--idempotency-key", f"{PREFIX}{one.number}")
        ended = await self.command("jobs", "submit", one.rule.job_type, *pairs, *key, "--json")
        if ended.code == CONFLICT:
            raise ConflictError(ended.error)
        if ended.code:
            raise OutcomeUnknownError(f"exit code {ended.code}: {ended.error}")
        return UUID(orjson.loads(ended.output)["job"]["id"])
