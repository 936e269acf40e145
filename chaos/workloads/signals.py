"""The signals of a run: sent to a key by SQL, in order, each until it is acknowledged.

A repetition has the same idempotency key. Each try is an operation of the history: `ok` with the
id of the signal, `fail` if it certainly did not take place, `info` if its reply was lost.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

from attrs import frozen

from chaos.history import History
from chaos.workloads.program import SIGNALS, Op, Program
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.postgres.database import Database
from cortex.store import signals

SENDERS: Final = 2
PAUSE_S: Final = (0.1, 0.5)
TWICE_SHARE: Final = 0.1
"""Of all signals, sent again although they were acknowledged."""


@frozen(kw_only=True)
class Sending:
    """One signal."""

    at_s: float
    key: str
    name: str
    number: int
    """Its content: how many of this name were sent to the key before."""


def draw_signals(
    seed: int, programs: Iterable[Program], *, duration_s: float
) -> tuple[Sending, ...]:
    """Draw when the signals of all programs are sent."""
    dice = random.Random(f"signals of {seed}")
    drawn = []
    for program in programs:
        for place, operation in enumerate(program.operations):
            if operation.op is Op.SIGNALS:
                times = sorted(dice.uniform(0, duration_s) for _ in range(SIGNALS))
                drawn += [
                    Sending(at_s=at_s, key=program.key, name=f"{place}:{operation.op}", number=n)
                    for n, at_s in enumerate(times)
                ]
    return tuple(drawn)


class Senders:
    """Send the signals of a run."""

    def __init__(self, history: History, *, seed: int) -> None:
        self._history = history
        self._seed = seed

    async def send_all(
        self, database: Callable[[], Awaitable[Database]], sendings: Sequence[Sending]
    ) -> None:
        """Send each when it is due, those to one key in their order."""
        began_s = self._history.now_s

        async def work(name: str, own: Sequence[Sending]) -> None:
            dice = random.Random(f"pauses of {name} of {self._seed}")
            for each in sorted(own, key=lambda each: (each.at_s, each.number)):
                await asyncio.sleep(began_s + each.at_s - self._history.now_s)
                await self._until_sent(name, database, each, dice)
                if dice.random() < TWICE_SHARE:
                    await self._until_sent(name, database, each, dice)

        by_key = [list(group) for _, group in groupby(sendings, key=lambda each: each.key)]
        async with asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                own = [each for line in by_key[number::SENDERS] for each in line]
                group.create_task(work(f"sender-{number + 1}", own))

    async def _until_sent(
        self,
        process: str,
        database: Callable[[], Awaitable[Database]],
        one: Sending,
        dice: random.Random,
    ) -> None:
        while not await self._try(process, database, one):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(dice.uniform(*PAUSE_S))

    async def _try(
        self, process: str, database: Callable[[], Awaitable[Database]], one: Sending
    ) -> bool:
        labels = {"key": one.key, "name": one.name, "number": one.number}
        self._history.add(process, "signal", "invoke", **labels)
        try:
            sent = await signals.send(
                await database(),
                one.name,
                str(one.number),
                key=one.key,
                idempotency_key=f"{one.name}/{one.number}",
            )
        except OutcomeUnknownError as error:
            self._history.add(process, "signal", "info", **labels, why=error.message)
            return False
        except CortexError as error:
            self._history.add(process, "signal", "fail", **labels, why=error.message)
            return False
        self._history.add(process, "signal", "ok", **labels, signal=str(sent))
        return True
