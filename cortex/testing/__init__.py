"""Tests of an application's jobs: in memory, without Postgres, with a clock that skips waits.

The fixture `cortex` of the pytest plugin is a `Cortex`. See docs/guides/testing.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cortex.testing.agents import agent
    from cortex.testing.harness import Cortex
    from cortex.testing.outcome import PromiseBrokenError, Run, StuckError

__all__ = ["Cortex", "PromiseBrokenError", "Run", "StuckError", "agent"]

_HOMES = {
    "Cortex": "cortex.testing.harness",
    "PromiseBrokenError": "cortex.testing.outcome",
    "Run": "cortex.testing.outcome",
    "StuckError": "cortex.testing.outcome",
    "agent": "cortex.testing.agents",
}


def __getattr__(name: str) -> Any:  # the plugin is imported by every test run
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
