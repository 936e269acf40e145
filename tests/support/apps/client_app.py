"""Job types for tests of clients, which run none."""

import attrs

from cortex import Context, job


@attrs.frozen
class Summary:
    """A typed argument and result."""

    words: int
    title: str


@job("digest")
async def digest(ctx: Context, urls: list[str], limit: int = 3) -> dict[str, int]:
    """Never runs: tests end its jobs themselves."""
    raise NotImplementedError


@job("summarise")
async def summarise(ctx: Context, summary: Summary, priority: int = 0) -> Summary:
    """Its argument is a class, and another one is named like an option."""
    raise NotImplementedError
