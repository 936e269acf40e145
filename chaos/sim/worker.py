"""A process that simulates seeds one after another.

    PYTHONHASHSEED=0 python -m chaos.sim.worker FOLDER

It reads one line per seed from stdin, such as `run 17 whole`, answers each with a line of JSON, and
ends when stdin does. The modes are `run`, `repeat` (twice, reporting the first difference) and
`keep` (with all lines of the transcript); `brief` instead of `whole` shortens the calm.
"""

import itertools
import json
import signal
import sys
from pathlib import Path
from typing import Any

import attrs

from chaos.sim.crew import BRIEF
from chaos.sim.outcome import Outcome
from chaos.sim.server import running_server
from chaos.sim.simulate import Simulator


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    folder = Path(sys.argv[1])
    with running_server(folder) as template_dsn:
        simulator = Simulator(template_dsn, workspaces=folder / "workspaces")
        for line in sys.stdin:
            mode, seed, length = line.split()
            document = _simulated(simulator, mode, int(seed), is_brief=length == BRIEF).to_json()
            sys.stdout.write(json.dumps(document) + "\n")
            sys.stdout.flush()


def _simulated(simulator: Simulator, mode: str, seed: int, *, is_brief: bool) -> Outcome:
    outcome = simulator.run(seed, keeps=mode != "run", is_brief=is_brief)
    if mode == "keep":
        return outcome
    problems = list(outcome.problems)
    virtual_s, took_s = outcome.virtual_s, outcome.took_s
    if mode == "repeat":
        again = simulator.run(seed, keeps=True, is_brief=is_brief)
        virtual_s, took_s = virtual_s + again.virtual_s, took_s + again.took_s
        problems += _differences(outcome, again)
    return attrs.evolve(
        outcome, problems=tuple(problems), virtual_s=virtual_s, took_s=took_s, lines=()
    )


def _differences(one: Outcome, other: Outcome) -> list[str]:
    """The first line in which two runs of a seed differ."""
    if one.digest == other.digest:
        return []
    pairs: Any = itertools.zip_longest(one.lines, other.lines)
    number, (first, second) = next(
        (n, pair) for n, pair in enumerate(pairs, 1) if len(set(pair)) > 1
    )
    return [f"two runs differ at line {number}: {first!r} and {second!r}"]


if __name__ == "__main__":
    main()
