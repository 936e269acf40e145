"""Prometheus' own tool for rules; .ci/run gets it from Debian's package."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.eventually import WITHIN_S


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it; skips the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine: apt-get install prometheus")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
