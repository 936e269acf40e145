"""What `cortex` exports, and what importing it costs."""

import inspect
import subprocess
import sys
from typing import Final

import cortex

IMPORT_MS_MAX: Final = 150.0
TRIES: Final = 3
HEAVY: Final = frozenset({"anthropic", "hypercorn", "rich", "structlog", "textual"})
IMPORT: Final = """
import sys, time
began = time.process_time()
import cortex
print((time.process_time() - began) * 1000, *sys.modules)
"""
NAMES: Final = """
import sys, cortex
[getattr(cortex, name) for name in cortex.__all__]
print(*sys.modules)
"""


def printed(program: str) -> list[str]:
    """Return the words that a new process prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def test_dir_shows_the_public_names_only() -> None:
    assert [name for name in dir(cortex) if not name.startswith("_")] == sorted(cortex.__all__)
    assert cortex._HOMES.keys() == set(cortex.__all__)


def test_public_names_are_documented() -> None:
    for name in cortex.__all__:
        assert inspect.getdoc(getattr(cortex, name)), name


def test_import_is_cheap_and_brings_no_screen_server_or_model() -> None:
    runs = [printed(IMPORT) for _ in range(TRIES)]
    assert min(float(took_ms) for took_ms, *_ in runs) <= IMPORT_MS_MAX
    assert not {*runs[0]} & {*HEAVY, "asyncpg", "attrs", "trio"}
    assert not {*printed(NAMES)} & HEAVY
