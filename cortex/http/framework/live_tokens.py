"""Ends reads that outlive their token: long waits, streams and large answers.

Owns: the reads that are open now, by token.
Invariants: a read ends at most a second after its token was revoked or expired, by whichever pod; a
look at the database asks for all tokens at once, and there is none while no read takes long.

On failure: without a database reads go on, as nothing can be read for them either; the next look
comes as usual.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.domain.errors import CortexError
from cortex.http.framework.principal import Principal
from cortex.http.framework.problem import UnauthenticatedError
from cortex.postgres.bridge import Port
from cortex.store import tokens

LOOK_S: Final = 0.6
"""Pause between two looks. With the time for which a token is believed it is less than a second."""
SHORT_S: Final = 0.1
"""Reads that are younger are not looked after yet: most end before."""

_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class _Read:
    """A read in progress."""

    scope: trio.CancelScope
    since: float


class LiveTokens:
    """The tokens of open reads."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._reads: defaultdict[UUID, set[_Read]] = defaultdict(set)
        self._is_wanted = trio.Event()
        self._is_failing = False

    def __len__(self) -> int:
        return sum(map(len, self._reads.values()))

    @contextmanager
    def read(self, principal: Principal) -> Iterator[None]:
        """Cancel the block when the caller's token is no longer valid.

        Raises `UnauthenticatedError` then. Callers without a token are not looked after.
        """
        token_id = principal.token_id
        if token_id is None:
            yield
            return
        read = _Read(trio.CancelScope(), trio.current_time())
        self._reads[token_id].add(read)
        self._is_wanted.set()
        try:
            with read.scope:
                yield
        finally:
            held = self._reads[token_id]
            held.discard(read)
            if not held:
                del self._reads[token_id]
        if read.scope.cancelled_caught:
            raise UnauthenticatedError("this token was revoked or has expired meanwhile")

    async def run(self) -> None:
        """Look after the open reads until cancelled."""
        while True:
            await self._is_wanted.wait()
            await trio.sleep(LOOK_S)
            if not self._reads:
                self._is_wanted = trio.Event()
                continue
            await self._look()

    async def _look(self) -> None:
        latest = trio.current_time() - SHORT_S
        asked = [
            token_id
            for token_id, reads in self._reads.items()
            if any(each.since <= latest for each in reads)
        ]
        if not asked:
            return
        try:
            valid = await self._port(tokens.valid, asked)
        except CortexError as error:
            if not self._is_failing:
                _log.warning("tokens of open reads not checked", error=error.message)
            self._is_failing = True
            return
        self._is_failing = False
        for token_id in asked:
            if token_id not in valid:
                for read in tuple(self._reads.get(token_id, ())):
                    read.scope.cancel(reason="its token is no longer valid")
