"""Programs that serve a pod over their standard streams, for as long as it wants.

Confined like those of `process`, and ended with everything that they started: when the caller
leaves, when the pod dies, and when they hold too much.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from cortex.agent.confinement.child import END_NOW, END_SOON
from cortex.agent.confinement.means import SYSTEM, UMASK, Launch
from cortex.agent.confinement.process import (
    GRACE_S,
    REPORT_BYTES,
    CappedOutput,
    collect,
    exited,
    pipe,
    reap,
    signal_group,
)

STDERR_BYTES: Final = 8_192
"""Bytes kept of its standard error: the first and the last half of them."""

INTERPRETER_MAX: Final = 512
"""Bytes of a script's first line."""
NOT_STARTED: Final = "cannot be started: "
"""The beginning of the ending of a program that never ran."""


@attrs.define(eq=False)
class Served:
    """A program that runs: its streams, and how it ended."""

    stdin: trio.abc.SendStream
    stdout: trio.abc.ReceiveStream
    _stderr: CappedOutput
    _process: trio.Process
    _report: int | None = None

    def complaint(self) -> str:
        """Return the last line of its standard error; nothing if it wrote none."""
        lines = [line.strip() for line in self._stderr.text().splitlines() if line.strip()]
        return lines[-1] if lines else ""

    async def ending(self, within_s: float) -> str:
        """Return how it ended, if it does within some seconds; else nothing."""
        with trio.move_on_after(within_s) as late:
            await exited(self._process)
        if late.cancelled_caught:
            return ""
        match self._reported().split(maxsplit=2):
            case ["errno", number, *_]:
                return f"{NOT_STARTED}{os.strerror(int(number))}"
            case ["code", code, *why]:
                return _ended(int(code), why[0].strip() if why else "")
            case _:
                return _ended(self._code(), "")

    def _code(self) -> int:
        """Return the exit code, or minus the signal; the process stays unreaped."""
        info = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return 0
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def _reported(self) -> str:
        if self._report is None:
            return ""
        with suppress(BlockingIOError):
            return os.read(self._report, REPORT_BYTES).decode(errors="replace")
        return ""


def _ended(code: int, why: str) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
    return why or how


@asynccontextmanager
async def served(
    argv: Sequence[str], *, launch: Launch | None, folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[Served]:
    """Run `argv` until the block is left; without a `launch`, unconfined.

    Leaving closes its input, then asks it to end, then kills it: at most `2 * GRACE_S` and the
    bounds of `process` later nothing of it is left. Raises OSError if it cannot start.
    """
    with ExitStack() as held:
        command, fds, report = list(argv), tuple[int, ...](), None
        soon: Callable[[trio.Process], None] = partial(signal_group, number=signal.SIGTERM)
        now: Callable[[trio.Process], None] = partial(signal_group, number=signal.SIGKILL)
        if launch is not None:
            held.callback(launch.end)
            control, to_control = pipe(held)
            report, report_end = pipe(held)
            os.set_blocking(report, False)
            soon, now = (partial(_send, to_control, word) for word in (END_SOON, END_NOW))
            command = launch.argv(command, control=control, report=report_end)
            fds = (control, report_end, *launch.descriptors)
            folder, environment = launch.folder, launch.environment
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=folder,
            env=dict(environment),
            pass_fds=fds,
            umask=UMASK if launch is not None else -1,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("started with pipes")
        stderr = CappedOutput(STDERR_BYTES)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drained, process.stderr, stderr)
                yield Served(process.stdin, process.stdout, stderr, process, report)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await process.stdin.aclose()
                for end in (soon, now):
                    with trio.move_on_after(GRACE_S):
                        await exited(process)
                    end(process)
                await reap(process)
                if launch is not None:
                    await trio.to_thread.run_sync(launch.after)


async def _drained(stream: trio.abc.ReceiveStream, output: CappedOutput) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await collect(stream, output)


def _send(control: int, word: bytes, _: trio.Process) -> None:
    with suppress(BrokenPipeError):
        os.write(control, word)


def unseen(command: str, shown: Sequence[str]) -> list[str]:
    """Return what a program lacks when it is confined, of what this machine has.

    The program itself and the interpreter that its first line names, unless they are in a folder
    of the system or a `shown` one.
    """
    found = shutil.which(command)
    if found is None:
        return []
    needed = [Path(found)]
    with suppress(OSError), needed[0].open("rb") as file:
        first = file.readline(INTERPRETER_MAX)
        if first.startswith(b"#!"):
            needed.append(Path(os.fsdecode(first[2:].split()[0])))
    files = {file for each in needed for file in (each, each.resolve())}
    seen = (*SYSTEM, *shown)
    return sorted(
        str(file)
        for file in files
        if file.exists() and not any(file.is_relative_to(each) for each in seen)
    )
