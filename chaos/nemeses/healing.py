"""Heals a fault whatever happens to the run: within a bound, and also when cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage

HEAL_WITHIN_S: Final = 60.0
AGAIN_S: Final = 0.1


async def to_its_end(work: Coroutine[Any, Any, None], *, within_s: float = HEAL_WITHIN_S) -> None:
    """Await `work` to its end; raises a cancellation only then. Raises `TimeoutError`."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    task = loop.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and loop.time() < give_up_at:
        try:
            await asyncio.wait({task}, timeout=give_up_at - loop.time())
        except asyncio.CancelledError as error:  # noqa: ASYNC103 -- raised at the end
            cancelled = error
    if not task.done():
        task.cancel()
        raise TimeoutError(f"not healed within {within_s:g} s")
    if cancelled is not None:
        raise cancelled
    task.result()


async def sql_when_up(stage: "Stage", query: str, *args: object) -> None:
    """Run a statement as superuser, repeatedly if needed: the server may be down."""
    while True:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await stage.postgres.sql(query, *args)
            return
        await asyncio.sleep(AGAIN_S)


async def until(condition: Callable[[], bool], *, within_s: float, every_s: float = 0.02) -> bool:
    """Wait until the condition holds; False if that took too long."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    while not condition():
        if loop.time() >= give_up_at:
            return False
        await asyncio.sleep(every_s)
    return True
