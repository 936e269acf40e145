"""Log lines as the terminal UI sees them, in memory."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.log_line import Level
from cortex.store.logs import LogPlace, LogRow
from cortex_tui.backend.logs import StoreLogs
from tests.support.terminal.tui_pods import _Fake


@attrs.define(kw_only=True)
class FakeLogs(_Fake[LogRow], StoreLogs):
    """The lines of a fake cluster; `rows` by their numbers, which also are their ids."""

    def add(self, number: int, message: str, *, job_id: UUID, **fields: Any) -> None:
        healthy: dict[str, Any] = {
            "id": number,
            "job_id": job_id,
            "attempt": 1,
            "number": number,
            "at": self.ago(100 - number),
            "level": Level.INFO,
            "step": None,
            "source": None,
            "message": message,
            "fields": None,
            "dropped": None,
            "now": self.now,
        }
        self.rows[number] = LogRow(**{**healthy, **fields})

    async def newest(self, job_id: UUID, *, limit: int) -> Sequence[LogRow]:
        self.check()
        return self._of(job_id)[-limit:]

    async def after(self, job_id: UUID, *, place: LogPlace, limit: int) -> Sequence[LogRow]:
        self.check()
        seen = dict(place.numbers)
        return [row for row in self._of(job_id) if row.number > seen.get(row.attempt, 0)][:limit]

    def _of(self, job_id: UUID) -> list[LogRow]:
        rows = (row for row in self.rows.values() if row.job_id == job_id)
        return sorted(rows, key=lambda row: (row.attempt, row.number))
