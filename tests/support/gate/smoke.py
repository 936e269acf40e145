"""The smoke tests, by their mark: `@pytest.mark.smoke("heading of docs/guarantees.md", case="id")`.

A case is the one set of parameters that runs. A mark without a promise keeps a surface: a pod that
serves, leaves, is seen. Read from the sources: collecting all tests takes longer than these do.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
MARK: Final = "pytest.mark.smoke"


@cache
def smoke_tests() -> dict[str, tuple[str, ...]]:
    """Return the ids of the smoke tests by the promise that they keep."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if MARK in text:
            for promise, name in marked(text):
                found[promise].append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return {promise: tuple(tests) for promise, tests in found.items()}


def marked(text: str) -> Iterator[tuple[str, str]]:
    """Yield the promise, "" for none, and the name of each smoke test of a source."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if ast.unparse(mark).partition("(")[0] == MARK:
                    call = mark if isinstance(mark, ast.Call) else ast.Call(mark, [], [])
                    promise = "".join(ast.literal_eval(each) for each in call.args)
                    case = "".join(f"[{ast.literal_eval(each.value)}]" for each in call.keywords)
                    yield promise, f"{node.name}{case}"


def promises() -> list[str]:
    """Return the headings of docs/guarantees.md that promise something."""
    lines = (ROOT / "docs" / "guarantees.md").read_text("utf-8").splitlines()
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    return [each for each in headings if each != "What is not promised"]
