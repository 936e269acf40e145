"""A bound on how fast a server may talk."""

from typing import Final

import attrs
import trio

from cortex.domain.errors import UnavailableError

MESSAGES_MAX: Final = 5_000
BYTES_MAX: Final = 128 << 20
WINDOW_S: Final = 10.0


@attrs.define
class Rate:
    """Counts the messages of one server, and their bytes."""

    _since: float = attrs.field(factory=trio.current_time)
    _count: int = 0
    _size: int = 0

    def add(self, count: int = 1, *, size: int = 0) -> None:
        """Count some. Raises `UnavailableError` for too many within a short time."""
        now = trio.current_time()
        if now - self._since > WINDOW_S:
            self._since, self._count, self._size = now, 0, 0
        self._count += count
        self._size += size
        if self._count > MESSAGES_MAX:
            raise UnavailableError(f"sent {MESSAGES_MAX:,} messages within {WINDOW_S:g} seconds")
        if self._size > BYTES_MAX:
            raise UnavailableError(f"sent {BYTES_MAX >> 20} MiB within {WINDOW_S:g} seconds")
