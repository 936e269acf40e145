"""Runs a pod, or other work, under signals: the first drains it, the second hands all jobs back.

A closed terminal (SIGHUP) drains as well, unless `nohup` is in effect, but never counts as the
second signal: it is no reason to hurry, and usually arrives twice, from the shell and from the
system.
"""

import os
import select
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import chain, repeat
from types import FrameType
from typing import Any, Final, TypeVar

import attrs
import structlog
import trio

from cortex.actors.phases import ShutdownLog
from cortex.actors.task_dump import dump_tasks_on_signal
from cortex.cli.target import database
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.errors import UnavailableError
from cortex.postgres.database import Profile
from cortex.postgres.errors import is_starting
from cortex.postgres.migrate import migrate
from cortex.postgres.session import run, run_alone
from cortex.runtime import deadman
from cortex.runtime.isolation.fork_server import ForkServer
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.loop_guard import STILL_MIN_S, LoopGuard
from cortex.runtime.own_secrets import hide_credentials, hide_memory
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import PodParts
from cortex.runtime.pod_ready import EVERYTHING, Intake, Ready, Worker
from cortex.store import people

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OUTPUTS: Final = (0, 1, 2)
RECOVERED_WITHIN_S: Final = 300.0
"""A server that replays its log refuses sessions; replaying takes minutes at most."""
RECOVERY_POLL_S: Final = 0.5

T = TypeVar("T")
_log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class Place:
    """Whether the process is a pod by itself, as it is by default, or a worker of one."""

    signals: Sequence[signal.Signals] = SIGNALS
    """Those that end it."""
    name: str | None = None
    worker: Worker | None = None
    http: socket.socket | None = None
    """Listens already for the API."""


ALONE: Final = Place()


async def serve(
    settings: Settings,
    make_parts: Callable[[], PodParts],
    *,
    on_ready: Callable[[Ready], None],
    shutdown: Shutdown | None = None,
    fork_server: ForkServer | None = None,
    place: Place = ALONE,
    intake: Intake = EVERYTHING,
) -> int:
    """Prepare the database and run a pod until a signal or `shutdown`; return the exit code.

    0: drained, every job ended or was handed back. 1: a phase of the shutdown was cut off, or the
    process had left too many threads behind. 128 + n: signal n came during start-up, or twice.
    """
    ending = shutdown or Shutdown()

    async def run(dsn: str) -> ShutdownLog:
        return await run_pod(
            settings,
            dsn=dsn,
            parts=make_parts(),
            chance=system_chance(),
            shutdown=ending,
            on_ready=on_ready,
            fork_server=fork_server,
            name=place.name,
            worker=place.worker,
            http_socket=place.http,
            intake=intake,
        )

    log, signal_seen = await under_signals(settings, run, ending=ending, signals=place.signals)
    if log is None or not ending.has_started or ending.abort.is_set():
        return 128 + signal_seen
    ending.starts_again = ending.is_worn_out and not signal_seen
    return 0 if log.is_clean and not ending.is_worn_out else 1


async def under_signals(
    settings: Settings,
    work: Callable[[str], Awaitable[T]],
    *,
    ending: Shutdown,
    signals: Sequence[signal.Signals] = SIGNALS,
) -> tuple[T | None, int]:
    """Prepare the database and do `work` with its address; each signal requests `ending`.

    Returns the result, None if a signal came before the work, and the last signal, or 0.
    """
    hide_memory()
    hide_credentials(
        settings.dsn, variables=settings.key_variables, secrets=settings.callback_secrets
    )
    starting = trio.CancelScope()
    signal_seen = came_count = 0
    result: T | None = None

    def came() -> None:
        nonlocal came_count
        came_count += 1

    heard = [each for each in signals if signal.getsignal(each) != signal.SIG_IGN]
    with trio.open_signal_receiver(*heard) as received:
        _arm_by_signals(settings, heard, came)
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal signal_seen
                told_count = 0
                async for signum in received:
                    signal_seen = signum
                    starting.cancel(reason=signal.Signals(signum).name)
                    # Two signals within one turn of the loop look like one to trio.
                    while told_count < came_count:
                        told_count += 1
                        ending.request()

            nursery.start_soon(watch)
            await nursery.start(dump_tasks_on_signal)
            guard = LoopGuard(still_s=max(settings.fence_s, STILL_MIN_S))
            await nursery.start(guard.run, name=guard.name)
            async with _database(settings, starting, lambda: signal_seen) as dsn:
                if dsn is not None:
                    result = await work(dsn)
            nursery.cancel_scope.cancel(reason="the work has ended")
    return result, signal_seen


def _arm_by_signals(
    settings: Settings, heard: Sequence[signal.Signals], came: Callable[[], None]
) -> None:
    """Let each signal set a deadline for the process, even when the event loop is blocked.

    `came` is called for each counted signal. The deadline is before the orchestrator's own. Call
    this inside the signal receiver, which restores the former handlers.
    """
    after_abort_s = settings.close_s + settings.hard_exit_s
    graces_s = chain([settings.drain_s + after_abort_s], repeat(after_abort_s))
    is_first = True

    def arm_and_hear(hear: Any, signum: int, frame: FrameType | None) -> None:
        nonlocal is_first
        if signum == signal.SIGHUP:
            let_go_of_outputs()
            if not is_first:
                return
        is_first = False
        deadman.arm(next(graces_s))
        came()
        hear(signum, frame)

    for number in heard:
        signal.signal(number, partial(arm_and_hear, signal.getsignal(number)))


def let_go_of_outputs() -> None:
    """Redirect outputs of a closed terminal to nowhere: a line of log would fail there."""
    poll = select.poll()
    for number in OUTPUTS:
        poll.register(number, 0)
    gone = [
        number for number, observed in poll.poll(0) if observed & (select.POLLHUP | select.POLLERR)
    ]
    if not gone:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in gone:
        os.dup2(nothing, number)
    os.close(nothing)


async def _migrate(dsn: str) -> None:
    """Bring the schema up to date; wait for a server that is still recovering.

    Raises the errors of `migrate`; for a recovering server only after `RECOVERED_WITHIN_S`.
    """
    give_up_at = trio.current_time() + RECOVERED_WITHIN_S
    has_logged = False
    while True:
        try:
            await trio.to_thread.run_sync(
                lambda: run_alone(lambda: migrate(dsn)), abandon_on_cancel=True
            )
        except UnavailableError as error:
            if not is_starting(error) or trio.current_time() > give_up_at:
                raise
            if not has_logged:
                _log.warning("waiting for the database", error=error.message)
                has_logged = True
        else:
            return
        await trio.sleep(RECOVERY_POLL_S)


async def _for_pods(dsn: str, settings: Settings) -> str:
    """Return the address with the login of pods; warn of one that may do what people do."""
    if settings.dsn is None:
        from cortex.postgres.pod_login import make_pod_login

        return await trio.to_thread.run_sync(
            lambda: run_alone(lambda: make_pod_login(dsn)), abandon_on_cancel=True
        )
    profile = Profile(dsn=dsn, connections_max=1)
    observed = await trio.to_thread.run_sync(
        lambda: run(profile, people.login), abandon_on_cancel=True
    )
    if observed.may_decide:
        _log.warning(
            "the pod's login may decide approvals",
            login=observed.login,
            hint="run pods with a login that is only a member of cortex_runtime",
        )
    return dsn


@asynccontextmanager
async def _database(
    settings: Settings, starting: trio.CancelScope, signal_seen: Callable[[], int]
) -> AsyncGenerator[str | None, None]:
    """Yield the address of a migrated database, or None if a signal came first."""
    held = ExitStack()

    def address() -> str:
        return held.enter_context(database(settings))

    dsn: str | None = None
    with starting:
        # A hanging connection attempt is bounded; a signal does not wait for it.
        found = await trio.to_thread.run_sync(address, abandon_on_cancel=True)
        await _migrate(found)
        dsn = await _for_pods(found, settings)
    if dsn is None:
        # The thread that prepares the database may hang; it gets no extra time.
        deadman.arm(deadman.GOODBYE_S, exit_code=128 + signal_seen())
    try:
        yield dsn
    finally:
        with trio.move_on_after(settings.close_s, shield=True):
            await trio.to_thread.run_sync(held.close, abandon_on_cancel=True)
