"""Commands of `cortex` that people run beside a cluster, each as a process of its own."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import define, frozen

from chaos.cluster.fork_server import ForkServer, Process

POLL_S: Final = 0.02
COMMAND_WITHIN_S: Final = 30.0
"""Longer than a command waits for a database that does not answer."""


@frozen
class Ended:
    """A command that has ended."""

    code: int
    """Negative if it was killed because it took too long."""
    output: str
    error: str


@define(kw_only=True)
class Commands:
    """Runs commands in a folder of their own."""

    fork_server: ForkServer
    folder: Path
    environment: Mapping[str, str]
    _count: int = 0

    async def __call__(self, *arguments: str) -> Ended:
        """Run `cortex` with these arguments.

        It is killed when it takes too long, and when this is cancelled.
        """
        self._count += 1
        path = self.folder / f"command-{self._count}"
        out_path, error_path = path.with_suffix(".out"), path.with_suffix(".log")
        with out_path.open("wb") as out, error_path.open("wb") as error:
            process = self.fork_server.start(
                arguments, env=self.environment, cwd=self.folder, stdout=out, stderr=error
            )
        try:
            await has_ended(process, within_s=COMMAND_WITHIN_S)
        finally:
            process.kill()
        output, message = (each.read_text("utf-8", "replace") for each in (out_path, error_path))
        for each in (out_path, error_path):
            each.unlink()
        return Ended(process.wait(), output, message)


async def has_ended(process: Process, *, within_s: float) -> bool:
    """Wait until a process has ended; False if that took too long."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + within_s
    while process.poll() is None:
        if loop.time() > give_up_at:
            return False
        await asyncio.sleep(POLL_S)
    return True
