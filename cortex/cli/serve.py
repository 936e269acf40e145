"""Runs a pod under signals: prepares its database, drains on the first signal, aborts on the second."""

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager

import trio

from cortex.actors.phases import ShutdownLog
from cortex.cli.target import database
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.pod import PodParts, Shutdown, run_pod
from cortex.services import deadman
from cortex.store.bridge import Port
from cortex.store.migrate import migrate
from cortex.store.session import run_alone

SIGNALS = (signal.SIGTERM, signal.SIGINT)
START_BOUND_S = 90.0


class Interrupted(Exception):
    """A signal ended the start-up: nothing was running yet."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


async def serve(
    settings: Settings,
    make_parts: Callable[[], Awaitable[PodParts]],
    *,
    on_ready: Callable[[Port, Shutdown, trio.Nursery], None],
) -> int:
    """Run a pod until a signal or a shutdown; return the exit code.

    0: drained, everything ended or was handed back. 1: a phase of the shutdown was cut off.
    128 + n: signal n came during start-up, or twice.
    """
    shutdown = Shutdown()
    last_signal = 0
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            starting = trio.CancelScope()

            async def watch() -> None:
                nonlocal last_signal
                async for signum in signals:
                    last_signal = signum
                    starting.cancel(reason=signal.Signals(signum).name)
                    shutdown.request()

            nursery.start_soon(watch)
            log: ShutdownLog | None = None
            async with _prepared(settings, starting) as dsn:
                if dsn is not None:
                    log = await run_pod(
                        settings,
                        dsn=dsn,
                        parts=await make_parts(),
                        chance=system_chance(),
                        shutdown=shutdown,
                        on_ready=lambda port: on_ready(port, shutdown, nursery),
                    )
                nursery.cancel_scope.cancel(reason="the pod has ended")
    if log is None or shutdown.abort.is_set():
        return 128 + last_signal
    return 0 if log.is_clean else 1


@asynccontextmanager
async def _prepared(
    settings: Settings, starting: trio.CancelScope
) -> AsyncGenerator[str | None, None]:
    """Yield the address of a migrated database, or None if a signal came first."""
    held: list[AbstractContextManager[str]] = []

    def prepare() -> str:
        target = database(settings)
        dsn = target.__enter__()
        held.append(target)
        run_alone(lambda: migrate(dsn))
        return dsn

    dsn: str | None = None
    with starting:
        dsn = await trio.to_thread.run_sync(prepare, abandon_on_cancel=True)
    if dsn is None:
        # The abandoned thread may be deep in a call that has its own, longer bound.
        deadman.arm(2.0)
    try:
        yield dsn
    finally:
        with trio.move_on_after(settings.close_s, shield=True):
            for target in held:
                await trio.to_thread.run_sync(
                    lambda t=target: t.__exit__(None, None, None), abandon_on_cancel=True
                )
