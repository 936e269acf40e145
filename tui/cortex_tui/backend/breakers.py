"""Circuit breakers, read and overridden in Postgres."""

from collections.abc import Mapping, Sequence
from typing import Final

from cortex.domain.breaker import Past
from cortex.domain.phrases import span
from cortex.postgres.database import Database
from cortex.store import breakers
from cortex.store.breakers import BreakerRow, past

SHOWN_MAX: Final = 200


class StoreBreakers:
    """The list of breakers, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[BreakerRow]:
        """Read the breakers, those that are not closed first."""
        return await breakers.page(self._db, limit=SHOWN_MAX)

    async def past(self, names: Sequence[str]) -> Mapping[str, Past]:
        """Read the recent history of some breakers, by name; see `cortex.store.breakers`."""
        return await past(self._db, names)

    async def hold_open(self, name: str, *, by: str, reason: str, for_s: float | None) -> str:
        """Hold a breaker open for a time; None: until somebody closes it.

        Returns the outcome.
        """
        await breakers.force_open(self._db, name, by=by, reason=reason, for_s=for_s)
        return f"held open {'until it is closed' if for_s is None else f'for {span(for_s)}'}"

    async def close(self, name: str, *, by: str, reason: str) -> str:
        """Close a breaker and reset its failures; return the outcome."""
        await breakers.close(self._db, name, by=by, reason=reason)
        return "closed: jobs call again"
