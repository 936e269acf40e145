"""Receipts of time-outs with one valid default of each part."""

from datetime import UTC, datetime, timedelta
from typing import Any

from cortex.domain.timeouts import (
    Artefact,
    FileChange,
    FinalAction,
    Interruption,
    Phase,
    Scope,
    TimeoutReceipt,
    WorkTree,
)
from tests.support.records.factories import a_lease

BEGAN = datetime(2025, 1, 1, 12, tzinfo=UTC)
"""When the interrupted step of these receipts began."""
BEFORE = BEGAN - timedelta(seconds=10)
SINCE = BEGAN + timedelta(seconds=10)


def an_interruption(**fields: Any) -> Interruption:
    defaults: dict[str, Any] = {
        "lease": a_lease(),
        "scope": Scope.CALL,
        "limit_s": 30.0,
        "elapsed_s": 30.25,
        "phase": Phase.TOOL,
        "step_key": "2 write_file",
        "step_elapsed_s": 31.0,
        "checkpoint_seq": 1,
        "checkpoint_key": "1 model",
        "retry_count": 0,
        "final_action": FinalAction.FAILED,
    }
    return Interruption(**defaults | fields)


def a_receipt(**fields: Any) -> TimeoutReceipt:
    defaults: dict[str, Any] = {"interruption": an_interruption(), "step_started_at": BEGAN}
    return TimeoutReceipt(**defaults | fields)


def a_change(path: str = "a.py", **fields: Any) -> FileChange:
    defaults: dict[str, Any] = {"state": ".M", "size_bytes": 3, "changed_at": SINCE}
    return FileChange(path=path, **defaults | fields)


def a_work_tree(*changes: FileChange, **fields: Any) -> WorkTree:
    defaults: dict[str, Any] = {
        "root": "/somewhere",
        "folder": "/somewhere/in",
        "branch": "main",
        "head": "a" * 40,
    }
    return WorkTree(**defaults | {"changes": changes, "change_count": len(changes)} | fields)


def an_artefact(path: str = "report.md", *, size_bytes: int = 5) -> Artefact:
    return Artefact(path=path, size_bytes=size_bytes, changed_at=SINCE, is_new=True)
