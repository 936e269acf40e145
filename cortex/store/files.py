"""Files of prompts and tool results, by digest."""

from typing import Any
from uuid import UUID

from cortex.domain.errors import RejectedError
from cortex.domain.file import JOB_BYTES_MAX
from cortex.postgres.database import Database


async def keep(
    db: Database, *, lineage_id: UUID, sha256: str, media_type: str, content: bytes
) -> None:
    """Keep a file of a lineage of jobs; one that is there stays. Raises `RejectedError`."""
    digest = bytes.fromhex(sha256)
    (row,) = await db.fetch("files.keep", lineage_id, digest, media_type, content, JOB_BYTES_MAX)
    if not row["is_kept"]:
        raise RejectedError(
            f"the job's images and PDFs have more than {JOB_BYTES_MAX:,} bytes in all",
            hint="give it smaller ones, or divide its work among several jobs",
        )


async def content(db: Database, *, lineage_id: UUID, sha256: str) -> bytes | None:
    """Return the content of a file; None: the lineage has no such file."""
    rows: Any = await db.fetch("files.content", lineage_id, bytes.fromhex(sha256))
    return rows[0]["content"] if rows else None
