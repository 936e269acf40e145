"""Child processes that cannot outlive, block or flood the call that started them.

Each child leads a session of its own, so that one signal reaches it and all that it started. A
descendant that opens a session for itself escapes that signal; it still cannot hold up the call,
because the pipes are read no longer than `DRAIN_S` after the child has gone.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import trio

from cortex.agent.confinement.child import END_NOW, END_SOON
from cortex.agent.confinement.means import UMASK, Launch
from cortex.domain.redaction import begun_in, ended_in, knows_any

# From SIGTERM to SIGKILL: time to flush and to remove a lock file, not to finish the work.
GRACE_S = 2.0
# For output still in the pipes when the child has exited.
DRAIN_S = 0.5
# A killed process ends at once unless the kernel holds it (a dead disk); then init takes it.
REAP_S = 5.0
READ_BYTES = 65_536
REPORT_BYTES = 4_096


@attrs.frozen
class Completed:
    """How a child ended. `exit_code` is minus the signal's number if a signal ended it.

    None if the kernel did not end it. `stdout` and `stderr` are capped, with a mark.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool


class CappedOutput:
    """The first and the last bytes of a stream, with a mark for the omitted middle."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes | bytearray) -> None:
        self._total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        """Return it as UTF-8; other bytes, and NUL, which Postgres cannot store, become U+FFFD."""
        left_out = self._total - len(self._head) - len(self._tail)
        if not left_out:
            both = bytes(self._head + self._tail).decode(errors="replace")
            return both.replace("\0", "\ufffd")
        head, tail = (part.decode(errors="replace") for part in (self._head, self._tail))
        if knows_any():  # half a secret cannot be redacted later: it is left out, too
            head = head.rstrip("\ufffd")
            head = head[: len(head) - begun_in(head)]
            tail = tail.lstrip("\ufffd")
            tail = tail[ended_in(tail) :]
        return f"{head}\n[… {left_out} bytes left out …]\n{tail}".replace("\0", "\ufffd")


async def run_process(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    output_max_bytes: int,
    uid: int | None = None,
) -> Completed:
    """Run `argv` without a shell and without standard input, and wait for it.

    `uid`: as this user, in the group of the same number and in no other; None: as the current user.

    On time-out and on cancellation the whole process group is ended: SIGTERM, `GRACE_S`, SIGKILL.
    So are processes in its group that outlive a child that exited by itself. Returns or raises at
    most `GRACE_S + 2 * REAP_S` after the time-out or the cancellation. Raises OSError if it cannot
    start.
    """
    return await _run(
        argv,
        folder=folder,
        environment=environment,
        timeout_s=timeout_s,
        output_max_bytes=output_max_bytes,
        signal_soon=partial(signal_group, number=signal.SIGTERM),
        signal_now=partial(signal_group, number=signal.SIGKILL),
        uid=uid,
    )


async def run_confined(
    argv: Sequence[str], *, launch: Launch, timeout_s: float, output_max_bytes: int
) -> Completed:
    """Run `argv` as `run_process` does, but confined: nothing that it started is left afterwards.

    Then what it may not leave in the folder moves away, also after a cancellation: that takes up to
    a few seconds more in a large folder. Raises OSError if it cannot start.
    """
    with ExitStack() as held:
        held.callback(launch.end)
        control, to_control = pipe(held)
        from_report, report = pipe(held)

        def send(_: trio.Process, word: bytes) -> None:
            with contextlib.suppress(BrokenPipeError):
                os.write(to_control, word)

        note = ""
        try:
            done = await _run(
                launch.argv([*argv], control=control, report=report),
                folder=launch.folder,
                environment=launch.environment,
                timeout_s=timeout_s,
                output_max_bytes=output_max_bytes,
                pass_fds=(control, report, *launch.descriptors),
                umask=UMASK,
                signal_soon=partial(send, word=END_SOON),
                signal_now=partial(send, word=END_NOW),
            )
        finally:
            with trio.CancelScope(shield=True):
                note = await trio.to_thread.run_sync(launch.after)
        if note:
            done = attrs.evolve(done, stderr=f"{done.stderr}\n[{note}]\n")
        os.set_blocking(from_report, False)
        with contextlib.suppress(BlockingIOError):
            return _reported(done, os.read(from_report, REPORT_BYTES), launch.note)
        return done


def pipe(held: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for each in ends:
        held.callback(os.close, each)
    return ends


def _reported(done: Completed, report: bytes, note: str) -> Completed:
    """Return how the program itself ended. Raises OSError if it never began."""
    match report.decode(errors="replace").split(maxsplit=2):
        case ["errno", number, *_]:
            raise OSError(int(number), os.strerror(int(number)))
        case ["code", code, *why]:
            notes = [each.strip() for each in (*why, note if code != "0" else "") if each.strip()]
            note_lines = "".join(f"\n[{each}]\n" for each in notes)
            return attrs.evolve(done, exit_code=int(code), stderr=done.stderr + note_lines)
        case _:
            return done


async def _run(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    output_max_bytes: int,
    signal_soon: Callable[[trio.Process], None],
    signal_now: Callable[[trio.Process], None],
    pass_fds: tuple[int, ...] = (),
    umask: int = -1,
    uid: int | None = None,
) -> Completed:
    stdout, stderr = CappedOutput(output_max_bytes), CappedOutput(output_max_bytes)
    started = trio.current_time()
    process = await trio.lowlevel.open_process(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        env=dict(environment),
        pass_fds=pass_fds,
        umask=umask,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else (),
    )
    has_exited = False
    try:
        with trio.move_on_after(timeout_s):
            async with trio.open_nursery() as readers:
                for stream, output in ((process.stdout, stdout), (process.stderr, stderr)):
                    if stream is not None:
                        readers.start_soon(collect, stream, output)
                await exited(process)
                has_exited = True
                readers.cancel_scope.deadline = trio.current_time() + DRAIN_S
    finally:
        with trio.CancelScope(shield=True):
            if not has_exited:
                signal_soon(process)
                with trio.move_on_after(GRACE_S):
                    await exited(process)
            signal_now(process)
            await reap(process)
    return Completed(
        exit_code=process.returncode,
        stdout=stdout.text(),
        stderr=stderr.text(),
        duration_s=round(trio.current_time() - started, 3),
        timed_out=not has_exited,
    )


async def collect(stream: trio.abc.ReceiveStream, output: CappedOutput) -> None:
    while chunk := await stream.receive_some(READ_BYTES):
        output.add(chunk)


async def exited(process: trio.Process) -> None:
    """Wait until the child has exited, and on Linux leave it unreaped.

    While it is a zombie its pid cannot be reused, so that a signal to the rest of its group hits no
    other process.
    """
    if not hasattr(os, "pidfd_open"):
        await process.wait()
        return
    exit_file = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(exit_file)
    finally:
        trio.lowlevel.notify_closing(exit_file)
        os.close(exit_file)


async def reap(process: trio.Process) -> None:
    """Wait for the end and close the pipes; bounded by `2 * REAP_S`. Call this shielded."""
    with trio.move_on_after(REAP_S):
        await process.wait()
    if process.returncode is None:
        signal_group(process, signal.SIGKILL)
        with trio.move_on_after(REAP_S):
            await process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()


def signal_group(process: trio.Process, number: signal.Signals) -> None:
    # Permission: every remaining member has changed its user (sudo); nothing more can be done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
