"""Jobs that ended long before a run: some may be deleted, a budget counts the others.

The retention of the run is a day, with an archive on disk.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from cortex.domain.clock import system_chance

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage

TYPE: Final = "chaos_old"
BY: Final = "chaos"
COUNT: Final = 6
ARCHIVE: Final = "archive"
"""The folder of it, in that of the run."""

BEGINS: Final = "INSERT INTO cortex.job_record (id, type, payload) VALUES ($1, $2, '{}')"
ENDS: Final = """
    UPDATE cortex.job_record
    SET status = 'CANCELLED', cancelled_by = $2, created_at = cortex.now() - interval '3 days',
        finished_at = cortex.now() - interval '2 days', updated_at = clock_timestamp()
    WHERE id = $1
"""
IS_NEEDED: Final = """
    INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
    VALUES ('job', $1, 'tokens', 'run', 1, 'chaos', '')
"""
KEEP_A_DAY: Final = "SELECT cortex.set_retention(NULL, 86400, NULL, $1, '{}', 'a run')"


async def apply(stage: "Stage", count: int) -> None:
    """Make the jobs, every second one of them needed, and set the retention."""
    for number in range(count):
        job_id, is_needed = system_chance().new_id(), bool(number % 2)
        await stage.postgres.sql(BEGINS, job_id, TYPE)
        if is_needed:
            await stage.postgres.sql(IS_NEEDED, str(job_id))
        await stage.postgres.sql(ENDS, job_id, BY)
        stage.history.add("run", "old", job=str(job_id), is_needed=is_needed)
    if count:
        folder = stage.folder / ARCHIVE
        folder.mkdir()
        await stage.postgres.sql(KEEP_A_DAY, str(folder))


def archived_in(folder: Path) -> frozenset[str]:
    """Return the ids of the jobs in an archive; none if there is none."""
    lines = (line for file in folder.rglob("*.jsonl") for line in file.read_bytes().splitlines())
    records = map(orjson.loads, lines)
    return frozenset(each["row"]["id"] for each in records if each["table"] == "job_record")
