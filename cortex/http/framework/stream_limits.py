"""Limits the number of open streams per token, so that other tokens get some as well.

Owns: the count of each token's streams. The feeds limit the total of a pod.
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
"""Suggested delay before a retry: when streams end is unknown."""


class StreamLimits:
    """Counts open streams."""

    def __init__(self) -> None:
        self._counts: Counter[UUID | None] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    @contextmanager
    def entered(self, principal: Principal) -> Iterator[None]:
        """Hold one stream during the block. Raises `RateLimitedError` if there is none left."""
        token = principal.token_id
        if self._counts[token] >= OF_TOKEN_MAX:
            raise RateLimitedError(
                f"this token already has {OF_TOKEN_MAX} open streams", wait_s=WAIT_S
            )
        self._counts[token] += 1
        try:
            yield
        finally:
            self._counts[token] -= 1
            if not self._counts[token]:
                del self._counts[token]
