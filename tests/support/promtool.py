"""Prometheus' own tool for rules; .ci/run gets it from Debian's package."""

import subprocess
from pathlib import Path

from tests.support.eventually import WITHIN_S
from tests.support.outside_programs import PROMTOOL


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it; skips the test where it is not installed."""
    return subprocess.run(
        [PROMTOOL.needed(), *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
