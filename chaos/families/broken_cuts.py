"""An application whose pods are broken, which the judge must notice.

They cancel no children of jobs that have ended: their leaves wait for ever.
"""

from chaos.families.app import branch, family, leaf
from cortex.postgres.database import Database
from cortex.store import children
from cortex.store.children import CutPass

__all__ = ["branch", "family", "leaf"]

_cut = children.cut


async def _broken(db: Database, *, limit: int = children.CANCEL_MAX) -> CutPass:
    return await _cut(db, limit=min(limit, 0))


children.cut = _broken
