"""The rules of flake8-async that read a syntax tree: `python -m tests.support.async_rules [FILE…]`.

They run on every tracked or named file with asynchronous code. The command `flake8-async` also
builds a concrete tree, four times a file, which takes ten times as long. What only that finds is
off here (ASYNC124, ASYNC910 to ASYNC913), has a rule of ruff (ASYNC100, RUF006) or one of
tests/test_tidy.py (ASYNC101).
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OFF: Final = {
    "ASYNC109": "timeout parameters: as for ruff",
    "ASYNC114": "wants every name that start() may get listed by hand",
    "ASYNC128": "does not see that the supervisor hands task_status on",
}
GENERATORS: Final = "resource,cortex.resource"
"""Decorators that make a context manager of an async generator."""
CODES: Final = r"[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*"
NOQA: Final = re.compile(rf"#\s*noqa(?::\s*(?P<codes>{CODES}))?", re.IGNORECASE)


def offences(path: str, text: str) -> Iterator[str]:
    """Yield what breaks a rule, unless its line names the rule after `noqa`."""
    # Half a second, which each process that collects tests would spend.
    from flake8_async import Plugin  # noqa: PLC0415

    from tests.support.async_runner import QuickRunner  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    Plugin.add_options(parser)
    options = ["--disable", ",".join(OFF), "--transform-async-generator-decorators", GENERATORS]
    Plugin.parse_options(parser.parse_args(options))
    lines = text.splitlines()
    for problem in sorted(QuickRunner.run(ast.parse(text), Plugin.from_source("").options)):
        noqa = NOQA.search(lines[problem.line - 1])
        codes = noqa and noqa["codes"]
        if noqa is None or (codes and problem.code not in re.split(r"[,\s]+", codes)):
            yield f"{path}:{problem}"


def main() -> int:
    """Print the offences; the exit status is 1 if there are any."""
    listed = ["git", "ls-files", "--", "*.py"]
    tracked = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    found: list[str] = []
    for path in sys.argv[1:] or tracked:
        text = Path(path).read_text("utf-8")
        found += offences(path, text) if re.search("async|trio", text) else ()
    sys.stdout.write("".join(f"{each}\n" for each in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
