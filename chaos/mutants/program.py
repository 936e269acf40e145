"""One program in a broken tree: started, awaited, and ended whatever happens."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WORDS_MAX: Final = 300


class BrokenTrialError(Exception):
    """A trial did not run, so nothing was shown."""


async def run_program(
    arguments: Sequence[str], tree: Path, *, within_s: float, codes: Sequence[int] = (0,)
) -> str:
    """Run Python in a tree; return what it printed. If cancelled, nothing of it remains.

    Raises `BrokenTrialError` when it takes too long, or ends with a code that is not in `codes`.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(within_s):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise BrokenTrialError(f"it did not end within {within_s:g} s") from error
    finally:
        await asyncio.shield(_end(process))
    if process.returncode not in codes:
        words = " ".join(err.decode("utf-8", "replace").split())
        raise BrokenTrialError(f"exit code {process.returncode}: {words[-WORDS_MAX:]}")
    return out.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it; its guard cleans up after it, even when it has to be killed."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(10.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
