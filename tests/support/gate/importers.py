"""Find the test files that import a module, directly or by way of `tests.support`."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[3]
HUB_MIN: Final = 25
"""Test files that import a module of the product which every test uses in some way, such as the
errors: its rule and the smoke tests have to do."""
IMPORTED: Final = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+(?:\(([^)]*)\)|([^\n#]*))")
NAMED: Final = re.compile(r"\b(?:tests\.support|bench|chaos|cortex|cortex_tui)(?:\.\w+)+")
"""An import of a module, or its name in a string, such as the application of a pod."""


def importers_of(path: str) -> tuple[str, ...]:
    """Return the test files that import a module, folders for a conftest; none for a hub."""
    users, queue = set[str](), [module_of(path)]
    seen = set(queue)
    while queue:
        wanted = queue.pop()
        for user, named in _named().items():
            if wanted in named and user not in users:
                users.add(user)
                module = module_of(user)
                if user.startswith("tests/support/") and module not in seen:
                    seen.add(module)
                    queue.append(module)
    found = sorted({test for user in users for test in tests_of(user)})
    is_hub = len(found) >= HUB_MIN and not path.startswith("tests/")
    return () if is_hub else tuple(found)


def tests_of(path: str) -> tuple[str, ...]:
    """Return what a changed file of `tests` selects by itself: a test file, or a folder."""
    file = PurePosixPath(path)
    if file.name == "conftest.py":
        return (str(file.parent),)
    is_test = file.name.startswith("test_") and file.suffix == ".py"
    return (path,) if is_test and (ROOT / path).exists() else ()


def module_of(path: str) -> str:
    """Return the name by which a file of Python is imported."""
    parts = PurePosixPath(path.removeprefix("tui/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_named(text: str) -> Iterator[str]:
    """Yield the modules that a source imports or names, and names that may be modules."""
    yield from NAMED.findall(text)
    for package, lines, line in IMPORTED.findall(text):
        yield package
        for name in re.findall(r"\w+", lines or line):
            yield f"{package}.{name}"


@cache
def _named() -> dict[str, frozenset[str]]:
    return {
        path.relative_to(ROOT).as_posix(): frozenset(modules_named(path.read_text("utf-8")))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
