"""What one job publishes, in memory; `tests/first/test_state_in_memory.py` compares it with SQL."""

from typing import Any

import attrs
import orjson

from cortex.domain.job import Publish
from cortex.domain.published import JobProgress


@attrs.define
class PublishedRecord:
    """What a database would keep of it."""

    state: dict[str, Any] = attrs.field(factory=dict)
    progress: JobProgress | None = None
    _last: tuple[int, int] = (0, 0)
    """The attempt that published last, and the number of its change."""

    async def publish(self, change: Publish) -> None:
        self.take(change)

    def take(self, change: Publish) -> None:
        """Publish what the job has assigned, once."""
        place = change.lease.attempt, change.number
        if place <= self._last:
            return
        self._last = place
        self.state = {
            **orjson.loads(change.defaults),
            **self.state,
            **orjson.loads(change.changes),
        }
        for key in change.removed:
            self.state.pop(key, None)
        is_kept = change.is_default and self.progress is not None
        if change.progress is not None and not is_kept:
            self.progress = change.progress
