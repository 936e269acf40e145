"""Codes of pods: immutable, so that pods and attempts can name the code that they ran."""

from hashlib import sha256

import attrs
import orjson

from cortex.postgres.database import Database


@attrs.frozen(kw_only=True)
class Code:
    """The code that a pod runs."""

    version: str
    """What people see: the operator's word for it, or a digest of its sources."""

    @property
    def digest(self) -> bytes:
        """Return what tells this code from others."""
        content = {"version": self.version}
        return sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).digest()


async def ensure(db: Database, code: Code) -> int:
    """Store a code unless it exists; return its id."""
    (row,) = await db.fetch("pods.ensure_code", code.digest, code.version)
    return int(row["id"])
