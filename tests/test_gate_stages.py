"""The stages of a gate: measured with all that they start, and ended when they take too long."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.gate.cost import Meter

STAGE: Final = Path(__file__).parent / "support" / "gate" / "stage.py"
COMPUTE: Final = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.6: pass'"


def stage(folder: Path, limit_s: int, command: str) -> tuple[int, list[int]]:
    words = [sys.executable, str(STAGE), f"{folder}/status", str(limit_s), "sh", "-c", command]
    ended = subprocess.run(words, check=False)
    return ended.returncode, [int(each) for each in (folder / "status").read_text().split()]


def test_a_stage_measures_what_it_started_orphans_too(tmp_path: Path) -> None:
    done = tmp_path / "done"
    orphan = f'(sh -c "{COMPUTE}; touch {done}" &)'
    until = f"while [ ! -e {done} ]; do sleep 0.05; done"
    status, (written, _, cpu_s) = stage(tmp_path, 60, f"{orphan}; {until}; exit 3")
    assert status == written == 3
    assert cpu_s >= 1


def test_a_stage_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    status, (written, wall_s, _) = stage(tmp_path, 1, "sleep 60 & wait")
    assert status == written == 124
    assert wall_s < 30


def test_the_cost_of_a_test_includes_what_it_starts(request: pytest.FixtureRequest) -> None:
    meter = Meter(psutil.Process())
    meter.pytest_collection_finish()
    run = meter.pytest_runtest_protocol(request.node)
    next(run)
    subprocess.run(["sh", "-c", COMPUTE], check=True)
    with pytest.raises(StopIteration):
        next(run)
    assert meter.used_s[request.node.nodeid] >= 0.5
