"""Starts the terminal UI on a database, and leaves the terminal as it was."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cortex.domain.clock import system_chance
from cortex.store.database import Profile, open_database
from cortex_tui.app import CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.clock import SystemClock
from cortex_tui.hearing import hear
from cortex_tui.key_table import read_keys
from cortex_tui.session import Session

BOUND_S: Final = 3.0
"""For one statement: longer, and the screen says that it is stale."""
CONNECTIONS_MAX: Final = 2
"""One that looks, one that acts."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def run(
    dsn: str,
    *,
    actor: str,
    place: str,
    is_read_only: bool,
    is_ascii: bool,
    has_color: bool,
    theme: str,
    keys_file: Path,
) -> int:
    """Run until the operator leaves; return the exit code. Before that it raises `CortexError`s."""
    keys = read_keys(keys_file)
    session = Session(
        actor=actor,
        clock=SystemClock(),
        place=place,
        is_read_only=is_read_only,
        is_ascii=is_ascii,
        theme=theme if has_color else "ansi",
    )

    async def main() -> int:
        # Each look is one of the same few statements: planned once, by index, as the runtime's.
        profile = Profile(dsn=dsn, hot_path=True, connections_max=CONNECTIONS_MAX, bound_s=BOUND_S)
        db = await open_database(profile, rng=system_chance().rng)
        try:
            app = CortexApp(session, StoreBackend(db), keys=keys, has_color=has_color)
            hearing = asyncio.create_task(
                hear(db.profile, session.clock, on_hint=app.poller.wake), name="hearing"
            )
            try:
                with _ending_by_signal(app):
                    code = await app.run_async()
            finally:
                hearing.cancel()
                with suppress(asyncio.CancelledError):
                    await hearing
            return app.return_code or 0 if code is None else code
        finally:
            await db.close()

    # Not asyncio.run: importing trio_asyncio changes what asyncio.new_event_loop makes.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main())


@contextmanager
def _ending_by_signal(app: CortexApp) -> Iterator[None]:
    """Leave in order, with the terminal as it was, when told to."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, app.exit, 128 + number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
