"""`python -m chaos all`: the long runs one after another, each as its own command."""

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
"""For a part after SIGTERM; everything that it started ends with it."""
RUN_SEEDS: Final = range(1, 6)


class Part(NamedTuple):
    """One command of this program."""

    arguments: tuple[str, ...]
    about_s: int
    """How long it takes on two cores."""

    @property
    def name(self) -> str:
        return " ".join(self.arguments)


PARTS: Final = (
    *(Part(("run", "--seed", str(seed)), 110) for seed in RUN_SEEDS),
    *(
        Part(("run", "--workers", "2", "--pods", "3", "--seed", str(seed)), 110)
        for seed in RUN_SEEDS[:2]
    ),
    Part(("points",), 390),
    Part(("agents",), 150),
    Part(("signals",), 300),
    Part(("limits",), 50),
    Part(("families",), 70),
    Part(("sim", "--seeds", "0:200"), 750),
    Part(("mutants",), 420),
)
WIDTH: Final = max(len(each.name) for each in PARTS)


@click.command()
def everything() -> int:
    """Run seven storms, all points, agents, signals, limits, families, 200 seeds and the mutants.

    Prints one line each, and the whole output of a part that fails.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # and with it, the running part
    minutes = sum(each.about_s for each in PARTS) // 60
    click.echo(f"{len(PARTS)} parts, about {minutes} minutes on two cores")
    failed = carry_out(PARTS)
    click.echo(f"FAILED: {', '.join(failed)}" if failed else "all green")
    return 1 if failed else 0


def carry_out(parts: Iterable[Part]) -> list[str]:
    """Run each part to its end; return the names of those that failed."""
    failed = []
    for part in parts:
        began = time.perf_counter()
        code, output = _run(part)
        took_s = time.perf_counter() - began
        if code == 0:
            click.echo(f"ok    {part.name:{WIDTH}}  {took_s:5.0f} s  {output[-1].strip()}")
            continue
        failed.append(part.name)
        click.echo(f"FAIL  {part.name:{WIDTH}}  {took_s:5.0f} s  exit code {code}")
        click.echo("\n".join(f"      {line}" for line in output))
    return failed


def _run(part: Part) -> tuple[int, list[str]]:
    """Return its exit code and output lines; it ends when this process does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", *part.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=ENDS_WITHIN_S)
        process.kill()
        raise
    code = process.returncode
    return code, output.strip().splitlines() or [f"no output, exit code {code}"]
