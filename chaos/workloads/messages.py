"""The messages of a run: who subscribes to them, and publishers that use plain SQL.

A publisher publishes one message after another under its own key, each in a transaction of its
own, some of which it rolls back. Each try is an operation of the history with a number of its own:
`ok`, `fail` if it certainly did not take place, `info` if its reply was lost.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from chaos.history import History
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.postgres.database import Database

if TYPE_CHECKING:
    import asyncpg

HOOK: Final = "chaos-hook"
"""The subscription to everything, also to what the runtime announces."""
SECRET: Final = "CHAOS_HOOK_SECRET"  # noqa: S105 -- a variable
SECRET_VALUE: Final = f"whsec_{'Q2hh' * 8}"
BY_STEP: Final = "chaos.step"
"""The topic of what jobs publish."""
BY_SQL: Final = "chaos.order"
"""The topic of what publishers publish."""
PUBLISHERS: Final = 2
PER_S: Final = 1.0
ROLLED_BACK_SHARE: Final = 0.2
PAUSE_S: Final = (0.1, 0.5)

SUBSCRIBE: Final = """
    INSERT INTO cortex.subscription (name, topic, channel, config, changed_by)
    VALUES ($1, $2, 'webhook', $3::jsonb, 'chaos')
"""
_PUBLISH: Final = "SELECT cortex.publish($1, $2::jsonb, $3)"


@frozen(kw_only=True)
class Publication:
    """One message that a publisher publishes, repeated until it is acknowledged."""

    at_s: float
    publisher: str
    is_rolled_back: bool


class _RolledBackError(CortexError):
    """Ends a transaction that is not to take place."""


def config_of_hook(url: str, *, path: str = HOOK) -> str:
    """The details of a subscription, whose receiver has this address."""
    return json.dumps({"url": f"{url}/{path}", "secrets": [f"env:{SECRET}"]})


def draw_publications(seed: int, *, duration_s: float) -> tuple[Publication, ...]:
    """Draw what publishers publish in a run."""
    drawn = []
    for number in range(1, PUBLISHERS + 1):
        dice = random.Random(f"publisher {number} of {seed}")
        count = round(duration_s * PER_S)
        drawn += [
            Publication(
                at_s=at_s,
                publisher=f"publisher-{number}",
                is_rolled_back=dice.random() < ROLLED_BACK_SHARE,
            )
            for at_s in sorted(dice.uniform(0, duration_s) for _ in range(count))
        ]
    return tuple(drawn)


class Publishers:
    """Publish the publications of a run."""

    def __init__(self, history: History, *, seed: int) -> None:
        self._history = history
        self._seed = seed
        self._count = 0

    async def publish_all(
        self, database: Callable[[], Awaitable[Database]], publications: Sequence[Publication]
    ) -> None:
        """Publish each when it is due, in the order of its publisher."""
        began_s = self._history.now_s
        names = sorted({each.publisher for each in publications})

        async def work(name: str) -> None:
            dice = random.Random(f"pauses of {name} of {self._seed}")
            for each in publications:
                if each.publisher == name:
                    await asyncio.sleep(began_s + each.at_s - self._history.now_s)
                    await self._publish(database, each, dice)

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(work(name))

    async def _publish(
        self, database: Callable[[], Awaitable[Database]], one: Publication, dice: random.Random
    ) -> None:
        while not await self._try(database, one):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(dice.uniform(*PAUSE_S))

    async def _try(self, database: Callable[[], Awaitable[Database]], one: Publication) -> bool:
        """Try once; whether it is over."""
        self._count += 1
        labels = {"number": self._count, "key": one.publisher}
        payload = json.dumps({"number": self._count})

        async def work(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
            await connection.fetchval(_PUBLISH, BY_SQL, payload, one.publisher)
            if one.is_rolled_back:
                raise _RolledBackError("it is not to take place")

        self._note("invoke", one, **labels)
        try:
            await (await database()).transact(work)
        except _RolledBackError:
            self._note("fail", one, **labels, why="it was rolled back")
            return True
        except OutcomeUnknownError as error:
            self._note("info", one, **labels, why=error.message)
            return False
        except CortexError as error:
            self._note("fail", one, **labels, why=error.message)
            return False
        self._note("ok", one, **labels)
        return True

    def _note(self, type_: str, one: Publication, **value: object) -> None:
        self._history.add(one.publisher, "publish", type_, **value)  # type: ignore[arg-type]
