"""The arguments of listed requests, each read once and cached as a short line."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from cortex.store.approvals import InboxRow
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.render import approval_rows

CHARS: Final = 200_000
"""Characters of arguments that are read at once."""
LONG_CHARS: Final = 20_000
"""Longer arguments are parsed outside the event loop."""
KEPT_MAX: Final = 500


class ArgumentReader:
    """`briefs` holds the lines by the digest of the arguments."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self.briefs: dict[Any, Cell] = {}

    def unread(self, rows: Sequence[InboxRow]) -> list[UUID]:
        """Return the ids of requests whose arguments were not read."""
        return [row.id for row in rows if row.digest not in self.briefs]

    async def read(self, ids: Sequence[UUID]) -> None:
        """Read the arguments of these requests, or of the first ones."""
        rows = await self._context.backend.approvals.arguments(ids, chars=CHARS)
        texts = {digest: text for _, digest, text in rows}
        is_long = sum(map(len, texts.values())) > LONG_CHARS
        briefs = await asyncio.to_thread(_briefs, texts) if is_long else _briefs(texts)
        if len(self.briefs) > KEPT_MAX:
            self.briefs.clear()
        self.briefs |= briefs


def _briefs(texts: dict[bytes, str]) -> dict[bytes, Cell]:
    return {digest: approval_rows.brief(text) for digest, text in texts.items()}
