"""The files of prompts and tool results, kept in the database.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from functools import partial
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.domain.file import StoredFile
from cortex.postgres.bridge import Port
from cortex.store import files

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreFiles:
    """The files of all jobs of a pod."""

    port: Port
    rng: random.Random

    async def keep(self, lineage_id: UUID, file: StoredFile, content: bytes) -> None:
        """Keep a file of a lineage of jobs; one that is there stays. Raises `RejectedError`."""
        write = partial(
            self.port,
            files.keep,
            lineage_id=lineage_id,
            sha256=file.sha256,
            media_type=file.media_type,
            content=content,
        )
        await retry_while_unavailable(write, log=_log, event="file not kept", rng=self.rng)

    async def content(self, lineage_id: UUID, sha256: str) -> bytes | None:
        """Return the content of a file; None: the lineage has no such file."""
        read = partial(self.port, files.content, lineage_id=lineage_id, sha256=sha256)
        return await retry_while_unavailable(read, log=_log, event="file not read", rng=self.rng)
