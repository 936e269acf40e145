"""Children end with the call that started them, whatever they try."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.confinement import process
from cortex.agent.confinement.process import CappedOutput, Completed, run_process
from tests.support.eventually import WITHIN_S

ENVIRONMENT = {"PATH": os.environ["PATH"]}


async def run(
    *argv: str,
    folder: Path,
    timeout_s: float = 30,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Completed:
    return await run_process(
        argv, folder=folder, environment=environment, timeout_s=timeout_s, output_max_bytes=1_000
    )


async def gone(pid: int) -> bool:
    """Wait until the process has ended; init may still have to reap it."""
    try:
        exit_seen = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        with trio.fail_after(WITHIN_S):
            await trio.lowlevel.wait_readable(exit_seen)
    finally:
        os.close(exit_seen)
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Reading it waits until the child has written to it and closed it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


async def read(fifo: Path) -> list[int]:
    text = await trio.to_thread.run_sync(fifo.read_text, abandon_on_cancel=True)
    return [int(word) for word in text.split()]


async def cancel_once_started(script: str, fifo: Path) -> list[int]:
    """Run a shell script that writes process ids to `fifo`; cancel; return them."""
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run("sh", "-c", script, folder=fifo.parent))
            pids = await read(fifo)
            assert pids
            nursery.cancel_scope.cancel()
    return pids


async def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    done = await run("sh", "-c", "pwd; echo wrong >&2; cat; exit 3", folder=tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (3, f"{tmp_path}\n", "wrong\n")
    assert not done.timed_out
    assert done.duration_s < 30


async def test_the_environment_is_the_given_one_alone(tmp_path: Path) -> None:
    done = await run("env", folder=tmp_path, environment={**ENVIRONMENT, "A": "b"})
    assert set(done.stdout.split()) == {f"PATH={ENVIRONMENT['PATH']}", "A=b"}


async def test_a_time_out_ends_the_child_and_keeps_its_output(tmp_path: Path) -> None:
    done = await run("sh", "-c", "echo $$; exec sleep 1000", folder=tmp_path, timeout_s=0.5)
    assert done.timed_out
    assert done.exit_code == -signal.SIGTERM
    assert done.duration_s < 1000
    assert await gone(int(done.stdout))


async def test_a_child_may_tidy_up_after_sigterm(tmp_path: Path) -> None:
    tidied = tmp_path / "tidied"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"trap 'echo > {tidied}; exit' TERM; sleep 1000 & echo $$ $! > {fifo}; wait"
    pids = await cancel_once_started(script, fifo)
    assert tidied.exists()
    assert [await gone(pid) for pid in pids] == [True, True]


async def test_a_child_that_ignores_sigterm_is_killed(
    fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.05)
    script = f"trap '' TERM; sleep 1000 & echo $$ $! > {fifo}; exec sleep 1000"
    pids = await cancel_once_started(script, fifo)
    assert [await gone(pid) for pid in pids] == [True, True]


async def test_a_stopped_child_is_killed(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.05)
    pids = await cancel_once_started(f"echo $$ > {fifo}; kill -STOP $$", fifo)
    assert [await gone(pid) for pid in pids] == [True]


async def test_background_processes_of_a_child_end_with_it(tmp_path: Path) -> None:
    with trio.fail_after(WITHIN_S):
        done = await run("sh", "-c", "sleep 1000 & echo $!", folder=tmp_path)
    assert (done.exit_code, done.timed_out) == (0, False)
    assert await gone(int(done.stdout))


async def test_a_descendant_with_its_own_session_cannot_hold_the_call_up(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "os.fork() and os._exit(0)\n"
        "os.setsid()\n"
        "print(os.getpid(), flush=True)\n"
        "signal.pause()"
    )
    with trio.fail_after(WITHIN_S):
        done = await run(sys.executable, "-S", "-c", script, folder=tmp_path)
    # It may also have been hit before it was out of the group.
    if done.stdout:
        os.kill(int(done.stdout), signal.SIGKILL)
        assert await gone(int(done.stdout))
    assert (done.exit_code, done.timed_out) == (0, False)


async def test_a_flood_of_output_is_capped(tmp_path: Path) -> None:
    script = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"
    done = await run("sh", "-c", script, folder=tmp_path)
    assert done.stdout.startswith("first\nxxx")
    assert done.stdout.endswith("xxx\nlast\n")
    assert "[… 2999012 bytes left out …]" in done.stdout


async def test_a_program_that_does_not_exist_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run("no-such-program", folder=tmp_path)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 20))
def test_capped_output_keeps_both_ends(chunks: list[bytes], half: int) -> None:
    output = CappedOutput(2 * half)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    if len(whole) > 2 * half:
        mark = f"\n[… {len(whole) - 2 * half} bytes left out …]\n".encode()
        whole = whole[:half] + mark + whole[-half:]
    assert output.text() == whole.decode(errors="replace").replace("\0", "\ufffd")
