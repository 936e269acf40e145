"""How many answers that go on may be open: for one token, so that others get some, too.

Owns: the count of each token's streams. How many a pod has in all is for what feeds them to say.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from cortex.http.framework.principal import Principal
from cortex.http.framework.problem import RateLimitedError

OF_TOKEN_MAX: Final = 100
WAIT_S: Final = 5.0
"""After which somebody may try again: streams end when somebody leaves, nobody knows when."""


class StreamLimits:
    """Counts streams while they are open."""

    def __init__(self) -> None:
        self._counts: Counter[UUID | None] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    @contextmanager
    def entered(self, principal: Principal) -> Iterator[None]:
        """Take a place for as long as the block. Raises `RateLimitedError` if there is none."""
        token = principal.token_id
        if self._counts[token] >= OF_TOKEN_MAX:
            raise RateLimitedError(
                f"{OF_TOKEN_MAX} streams are open with this token already", wait_s=WAIT_S
            )
        self._counts[token] += 1
        try:
            yield
        finally:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]
