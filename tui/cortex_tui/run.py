"""Starts the terminal UI on a database, and restores the terminal afterwards."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from cortex.domain.clock import system_chance
from cortex.domain.errors import (
    ConflictError,
    ForbiddenError,
    OutcomeUnknownError,
    UnavailableError,
)
from cortex.domain.people import Identity
from cortex.domain.safe import safe
from cortex.postgres.database import READER_ROLE, Database, Profile, open_database
from cortex.postgres.session import read_only_profile
from cortex_tui import crash
from cortex_tui.app import CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.beside import PodBeside
from cortex_tui.clock import SystemClock
from cortex_tui.desktop import Notify
from cortex_tui.ending import ending_by_signal
from cortex_tui.hints import hear
from cortex_tui.key_table import read_keys
from cortex_tui.quitting import SETTLE_S
from cortex_tui.session import Session
from cortex_tui.terminal import Terminal

BOUND_S: Final = 3.0
"""For one statement: after that the screen says that it is stale."""
CONNECTIONS_MAX: Final = 3
"""One for polls, one for actions, and one for the count before a bulk operation."""

HOLDS_ESC: Final = "STY"
"""Set within GNU screen, which delays esc until the next key if the mouse is enabled."""
GC_ALLOCATIONS: Final = 10_000
"""Between two garbage collections: a screenful of lines allocates about this many objects."""


def run(
    dsn: str,
    *,
    identity: Identity,
    place: str,
    is_read_only: bool,
    is_ascii: bool,
    has_color: bool,
    theme: str,
    notify: str,
    keys_file: Path,
    pictures: Path,
    reports: Path,
    is_debug: bool,
    report: Callable[[str], object],
    pod: PodBeside | None = None,
    tenant: str | None = None,
) -> int:
    """Run until the operator quits; return the exit code. Raises `CortexError` before it starts.

    The code is 128 + n for signal n: SIGHUP when the terminal is gone. `pod` receives the signals.
    `report` gets a line for each interrupted action, once the shell has the terminal again. Only
    records of the `tenant` are listed and found, if there is one.
    """
    keys = read_keys(keys_file)
    session = Session(
        identity=identity,
        clock=SystemClock(),
        place=place,
        is_read_only=is_read_only,
        is_ascii=is_ascii,
        theme=theme if has_color else "ansi",
        colors=Console(force_terminal=True).color_system or "standard",  # as Textual does
        notify=Notify(notify),
        pictures=pictures,
        reports=reports,
        pod=pod,
    )

    async def main() -> int:
        profile = _profile(dsn, tenant)
        if is_read_only:
            profile = await read_only_profile(profile)
            session.is_reader = profile.role == READER_ROLE
        db = await _opened(profile, is_read_only=is_read_only)
        try:
            await _look_for_schema(backend := StoreBackend(db, credential=identity.proven))
            app = CortexApp(session, backend, keys=keys, has_color=has_color, driver=Terminal)
            gc.freeze()  # imported objects stay: the collector need not scan them
            gc.set_threshold(GC_ALLOCATIONS)
            try:
                async with _hinted(app, db.profile):
                    with ending_by_signal(app.exit, heard=None if pod is None else pod.signalled):
                        code = await app.run_async(mouse=HOLDS_ESC not in os.environ)
            finally:
                await backend.close()
            try:
                await _settle(app, report)
            finally:
                if faults := (*app.faults, *app.context.actions.faults):
                    code = crash.report(faults, folder=reports, at=session.now, is_debug=is_debug)
            return app.return_code or 0 if code is None else code
        finally:
            await db.close()

    # Not asyncio.run: importing trio_asyncio changes what asyncio.new_event_loop makes.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main())


@asynccontextmanager
async def _hinted(app: CortexApp, profile: Profile) -> AsyncIterator[None]:
    """Wake the app's poller when pods notify of changes."""
    hearing = asyncio.create_task(hear(profile, app.session.clock, on_hint=app.context.wake))
    try:
        yield
    finally:
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing


def _profile(dsn: str, tenant: str | None) -> Profile:
    # A poll is one of few statements: prepared once, by index, like the runtime's.
    return Profile(
        dsn=dsn,
        hot_path=True,
        connections_max=CONNECTIONS_MAX,
        bound_s=BOUND_S,
        tenant=tenant,
    )


async def _opened(profile: Profile, *, is_read_only: bool) -> Database:
    """Open the database; raises `CortexError` with a hint."""
    try:
        return await open_database(profile, rng=system_chance().rng)
    except ForbiddenError as error:
        if is_read_only:
            raise
        hint = f"{error.hint}; a login that may only look: --read-only"
        raise ForbiddenError(error.message, hint=hint) from error


async def _look_for_schema(backend: StoreBackend) -> None:
    """Raise `SchemaError` if the schema does not fit; screens report all other trouble."""
    with suppress(UnavailableError, OutcomeUnknownError):
        await backend.head()


async def _settle(app: CortexApp, report: Callable[[str], object]) -> None:
    """Finish running actions and send the held decision: a signal waits for neither."""
    actions = app.context.actions
    ended = await actions.settle(within_s=SETTLE_S)
    for line in (*app.quitting.parting, *(each.outcome for each in ended)):
        report(line)
    done = None
    try:
        done = await app.context.recall.leave()
    except Exception as fault:
        if fault not in actions.faults:  # these are reported with the app's faults
            raise
        report(safe(f"{actions.log[0].command}: {actions.log[0].outcome}"))
    if done is not None and not done.is_done:
        raise ConflictError(done.outcome)
