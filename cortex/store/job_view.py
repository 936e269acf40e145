"""One job as somebody watches it: what it did and does, and each of its steps in full.

One statement for each look, bounded however many steps the job has.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Database, Record
from cortex.store.operator import COUNT_MAX, head_of

OTHERS_MAX: Final = 100
"""Of attempts, effects, approvals and transitions: the newest ones."""
TEXT_CHARS_MAX: Final = 65_536
"""Of an output, of arguments, of the payload."""
TOOLS_OF_ANSWER_MAX: Final = 200
"""Among so many steps before a tool's call the answer stands that asked for it."""
_LISTS: Final = ("steps", "attempts", "effects", "approvals", "budgets", "history")
_OBJECTS: Final = ("checkpoint", "awaited", "usage")


async def look(db: Database, job_id: UUID, *, after: int | None, limit: int) -> dict[str, Any]:
    """Return a job with the `steps` after one in order, or with None the newest ones.

    And with its newest `attempts` that ended, `effects`, `approvals`, and its `budgets` per run.
    Its `head` is what stands above every screen. Raises `NotFoundError`.
    """
    row = await db.fetch_one("job_view.look", job_id, after, limit, OTHERS_MAX, COUNT_MAX)
    if row is None:
        raise _no_such_job(job_id)
    return _decoded(row) | {"head": head_of(row["head"])}


async def steps_before(db: Database, job_id: UUID, *, before: int, limit: int) -> list[Any]:
    """Return the steps just before a number, in order."""
    rows = await db.fetch("job_view.steps_before", job_id, before, limit)
    return [_decoded(row) for row in reversed(rows)]


async def detail(db: Database, job_id: UUID, key: str) -> dict[str, Any]:
    """Return a step, committed or not, its effect, the job's payload and its history.

    `output`, `asked_by`, `arguments`, `effect_result` and `payload` are JSON text, of which the
    first `TEXT_CHARS_MAX` characters. Raises `NotFoundError` when there is no such job.
    """
    row = await db.fetch_one(
        "job_view.detail", job_id, key, TEXT_CHARS_MAX, OTHERS_MAX, TOOLS_OF_ANSWER_MAX
    )
    if row is None:
        raise _no_such_job(job_id)
    return _decoded(row)


def _decoded(row: Record) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    if value is None or name not in (*_LISTS, *_OBJECTS):
        return value
    found = orjson.loads(value)
    return [_with_instants(each) for each in found] if name in _LISTS else found


def _with_instants(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Let its instants be instants again: as JSON they were text."""
    return {
        name: datetime.fromisoformat(value)
        if value is not None and (name == "at" or name.endswith("_at"))
        else value
        for name, value in entry.items()
    }


def _no_such_job(job_id: UUID) -> NotFoundError:
    return NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
