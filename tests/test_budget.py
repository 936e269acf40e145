"""CPU budgets of the test folders, by the fixtures that tests use, so that runs stay short.

A test costs what the dearest of its fixtures does: figures that were measured, in seconds of CPU,
so that the sums are the same on every machine and under every load. A folder that exceeds its
budget has to become cheaper first: share a pod, look at a screen once more rather than start it
again, move what nobody needs a process for into tests/unit.
"""

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

FIXTURES_S: Final = {
    "playing": 0.8,  # faults on a stage with pods, a server and proxies
    "pods": 0.5,
    "mcp_command": 1.5,  # `cortex mcp` as a process: half a second for the packages alone
    "signal_bench": 2.5,  # pods whose jobs receive signals, and are killed
    "limits_bench": 2.0,  # pods that are killed, with a server of their own
    "families_bench": 2.0,  # pods of families that are killed, with a server of their own
    "agent_bench": 2.5,  # pods of agents that are killed, with a server and a model of their own
    "confined": 0.5,  # a pod's place, and programs confined there
    "confined_as_me": 0.3,
    "private_postgres": 0.7,
    "server_home": 0.5,
    "browser": 1.5,  # a page in a browser that the module shares
    "cortex": 0.07,  # a few commands in this process, rarely a forked one
    "cluster": 0.12,  # a terminal UI without a terminal
    "own_server": 0.08,
    "server": 0.02,  # what `own_server` is, or shared by a module
    "database": 0.03,
}
OTHERS_S: Final = 0.01

BUDGETS_S: Final = {
    "tests": 2.5,
    "tests/agent": 19.5,
    "tests/batches": 2.5,  # one of them kills pods
    "tests/bench": 1.0,
    "tests/callbacks": 10.0,  # three of them kill pods
    "tests/chaos": 39.5,
    "tests/cli": 47.0,
    "tests/children": 12.0,
    "tests/client": 3.5,
    "tests/context": 2.5,  # what agents do when conversations get long, or go in circles
    "tests/demo": 1.5,
    "tests/e2e": 104.5,
    "tests/first": 10.0,  # what jobs show, and the first of several waits; some of it on pods
    "tests/hostile": 30.0,
    "tests/http": 37.5,
    "tests/limits": 12.0,  # most of them in SQL; six kill pods
    "tests/mcp": 10.0,  # eleven of them run pods; the programs of the others start within 30 ms
    "tests/options": 3.0,  # what is asked of models: options, output, files
    "tests/pauses": 4.0,  # which job first, and whether at all
    "tests/providers": 4.0,  # the clients of models, against a strict fake of each API
    "tests/signals": 12.0,
    "tests/mcp_server": 11.0,  # an assistant and its server, most of them in the test's process
    "tests/runtime": 22.5,
    "tests/sql": 10.5,
    "tests/store": 60.5,
    "tests/tui": 97.5,
    "tests/tui_waits": 2.0,  # trees of jobs, pauses, limits, output of code
    "tests/unit": 50.5,
}


def costs(items: list[pytest.Item]) -> dict[str, float]:
    """Return the sums by folder."""
    found: defaultdict[str, float] = defaultdict(float)
    for item in items:
        folder, *below = item.path.relative_to(ROOT).parent.parts
        names = getattr(item, "fixturenames", ())
        cost_s = max((FIXTURES_S[name] for name in names if name in FIXTURES_S), default=OTHERS_S)
        found["/".join([folder, *below[:1]])] += cost_s
    return dict(found)


def test_each_folder_keeps_its_budget(request: pytest.FixtureRequest) -> None:
    """On a part of the tests it sees the cost of that part; the gate runs all."""
    found = costs(request.session.items)
    assert found.keys() <= BUDGETS_S.keys(), "a folder without a budget"
    over = [
        f"{folder}: {cost_s:.0f} s of {BUDGETS_S[folder]:.0f} s"
        for folder, cost_s in found.items()
        if cost_s > BUDGETS_S[folder]
    ]
    assert not over, "\n".join(["", *over])
