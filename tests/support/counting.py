"""A port that counts the statements that pass it, and whose database can be taken away."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from cortex.domain.errors import UnavailableError
from cortex.postgres.bridge import Port
from cortex.postgres.dedicated import Dedicated
from tests.support.records.faulty_port import FaultyPort


class CountingPort(FaultyPort):
    """Calls by the names of their methods; on a dedicated connection, too."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.counts: Counter[str] = Counter()
        self.is_down = False
        self.is_silent = False
        """A black hole: calls get no answer."""

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await self._pass(method)
        return await super().__call__(method, *args, **kwargs)

    async def cross(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await self._pass(method)
        return await super().cross(method, *args, **kwargs)

    async def open(self, session: Dedicated) -> None:
        await self._pass(session.open)
        await super().open(session)

    async def _pass(self, method: Callable[..., Any]) -> None:
        self.counts[method.__name__] += 1
        if self.is_silent:
            await trio.sleep_forever()
        if self.is_down:
            raise UnavailableError("the database is away")
