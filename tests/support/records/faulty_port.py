"""A port on which a test makes chosen calls go wrong."""

from collections.abc import Callable
from typing import Any

from cortex.domain.errors import CortexError, OutcomeUnknownError, Trouble, UnavailableError
from cortex.postgres.bridge import Port
from cortex.postgres.dedicated import Dedicated


class FaultyPort(Port):
    """A port on which chosen calls go wrong, once each, as networks and servers do."""

    def __init__(self, port: Port) -> None:
        """`port` does the work."""
        super().__init__(port._island, port._db, port._profile)
        self._port = port
        self._faults: list[tuple[Callable[..., Any], bool, Exception]] = []

    def lose_reply(self, method: Callable[..., Any]) -> None:
        """Do the next call of this method and then forget its outcome."""
        self._faults.append((method, True, OutcomeUnknownError("the reply was lost")))

    def lose_request(self, method: Callable[..., Any]) -> None:
        """Lose the next call of this method before it gets anywhere; callers see no difference."""
        self._faults.append((method, False, OutcomeUnknownError("the request was lost")))

    def refuse(
        self,
        method: Callable[..., Any],
        trouble: Trouble | None = None,
        *,
        is_locked: bool = False,
    ) -> None:
        """Answer the next call of this method that the server is not there, or lacks something.

        `is_locked`: that another session holds a row.
        """
        error = UnavailableError("not there", trouble=trouble, is_locked=is_locked)
        self._faults.append((method, False, error))

    def crash(self, method: Callable[..., Any]) -> None:
        """Fail in the next call of this method as only a mistake in the code does."""
        self._faults.append((method, False, RuntimeError("a mistake")))

    def fail(self, method: Callable[..., Any], error: CortexError) -> None:
        """Let the next call of this method raise this, and do nothing."""
        self._faults.append((method, False, error))

    @property
    def faults_left(self) -> int:
        return len(self._faults)

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for number, (meant, works, error) in enumerate(self._faults):
            if meant is method:
                del self._faults[number]
                if works:
                    await self._port(method, *args, **kwargs)
                raise error
        return await self._port(method, *args, **kwargs)

    @property
    def is_pooled(self) -> bool:
        return self._port.is_pooled

    async def cross(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._port.cross(method, *args, **kwargs)

    async def open(self, session: Dedicated) -> None:
        await self._port.open(session)

    async def close(self, session: Dedicated) -> None:
        await self._port.close(session)

    def dedicated(self, *, on_lost: Callable[[], None]) -> Dedicated:
        return self._port.dedicated(on_lost=on_lost)
