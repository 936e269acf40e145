"""Describes runners: background work that pods and ticks do for the whole system."""

from collections.abc import Sequence
from datetime import datetime

from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.background.runners import RunnerRow
from cortex.store.pulse import Trouble


def pulse_text(rows: Sequence[RunnerRow]) -> str:
    """Describe all runners in one line: `11 runners ok`, or which of them are late or fail."""
    late = [row.name for row in rows if row.is_late]
    failing = [row.name for row in rows if row.error is not None and not row.is_late]
    if not rows:
        return "no runner has run yet"
    parts = [f"late: {', '.join(late)}"] if late else []
    parts += [f"failed: {', '.join(failing)}"] if failing else []
    return " · ".join(parts) if parts else _all_ok(len(rows))


def _all_ok(count: int) -> str:
    return "1 runner ok" if count == 1 else f"{count} runners ok"


def late_text(trouble: Trouble, now: datetime) -> str:
    """Describe a runner that is late, already safe: `runner retries has not succeeded for 5m`."""
    since = "" if trouble.at is None else f" for {span((now - trouble.at).total_seconds())}"
    why = "" if trouble.error is None else f": {trouble.error}"
    return safe(f"runner {trouble.name} has not succeeded{since}{why}")
