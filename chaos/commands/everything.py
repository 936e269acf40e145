"""`python -m chaos all`: the long runs one after another, each as a person would start it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import click

TERMINATED: Final = 128 + signal.SIGTERM
ENDS_WITHIN_S: Final = 20.0
"""A part that is told to; what it started ends with it, at the latest."""
RUN_SEEDS: Final = range(1, 6)


class Part(NamedTuple):
    """One command of this program."""

    arguments: tuple[str, ...]
    about_s: int
    """What it took on two cores."""

    @property
    def name(self) -> str:
        return " ".join(self.arguments)


PARTS: Final = (
    *(Part(("run", "--seed", str(seed)), 110) for seed in RUN_SEEDS),
    Part(("points",), 390),
    Part(("sim", "--seeds", "0:200"), 750),
    Part(("mutants",), 420),
)
WIDTH: Final = max(len(each.name) for each in PARTS)


@click.command()
def everything() -> int:
    """Run five storms, all points, 200 seeds and the mutants: more than half an hour.

    A line each; of one that fails, all that it said.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # and with it, what runs
    minutes = sum(each.about_s for each in PARTS) // 60
    click.echo(f"{len(PARTS)} parts, about {minutes} minutes on two cores")
    failed = carry_out(PARTS)
    click.echo(f"FAILED: {', '.join(failed)}" if failed else "all green")
    return 1 if failed else 0


def carry_out(parts: Iterable[Part]) -> list[str]:
    """Run each to its end, which each has by itself; the names of those that failed."""
    failed = []
    for part in parts:
        began = time.perf_counter()
        code, said = _run(part)
        took_s = time.perf_counter() - began
        if code == 0:
            click.echo(f"ok    {part.name:{WIDTH}}  {took_s:5.0f} s  {said[-1].strip()}")
            continue
        failed.append(part.name)
        click.echo(f"FAIL  {part.name:{WIDTH}}  {took_s:5.0f} s  exit code {code}")
        click.echo("\n".join(f"      {line}" for line in said))
    return failed


def _run(part: Part) -> tuple[int, list[str]]:
    """Its exit code and the lines that it wrote; it is told to end when this process is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", *part.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=ENDS_WITHIN_S)
        process.kill()
        raise
    code = process.returncode
    return code, said.strip().splitlines() or [f"it said nothing and ended with {code}"]
