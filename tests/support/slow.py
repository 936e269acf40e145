"""Which tests are slow, and which of them a run leaves to others.

`tests/slow.txt` names functions, one a line, of which one case at least took too long. Without
`--slow` all run. `--slow 7/5` runs about every fifth of their cases: which, the number before the
slash draws.

    python -m tests.support.slow FILE

writes `tests/slow.txt` anew, from what `pytest --junitxml FILE` told of a whole run.
"""

import re
import sys
import xml.etree.ElementTree as ET
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

LIST: Final = Path(__file__).parent.parent / "slow.txt"
SLOW_S: Final = 0.5
DRAW: Final = re.compile(r"(\d+)/([1-9]\d*)")


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "run every Mth case of the slow tests, as the number N draws [all]"
    parser.addoption("--slow", metavar="N/M", default="0/1", help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    draw = DRAW.fullmatch(config.getoption("--slow"))
    if draw is None:
        raise pytest.UsageError(f"--slow {config.getoption('--slow')}: it is N/M, such as 7/5")
    slow = names()
    number, share = int(draw[1]), int(draw[2])
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        is_left = function(item.nodeid) in slow and not is_drawn(item.nodeid, number, share)
        (left if is_left else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def names() -> frozenset[str]:
    """Such as `tests/unit/test_x.py::test_y`."""
    return frozenset(LIST.read_text("utf-8").split())


def is_drawn(nodeid: str, number: int, share: int) -> bool:
    """Whether it is one of those that `--slow number/share` runs."""
    # Each case has a place of its own, and numbers that follow one another go through all places.
    return (zlib.crc32(nodeid.encode()) + number) % share == 0


def function(nodeid: str) -> str:
    """The test without the case."""
    return nodeid.partition("[")[0]


def listed(junit: Path) -> list[str]:
    """The names of those that took too long there."""
    longest_s: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314 -- pytest wrote it
        modules, _, inside = re.sub(r"\.(?=[A-Z])", ":", case.get("classname", "")).partition(":")
        parts = (modules.replace(".", "/") + ".py", inside, function(case.get("name", "")))
        name = "::".join(filter(None, parts))
        longest_s[name] = max(longest_s[name], float(case.get("time", "0")))
    return sorted(name for name, took_s in longest_s.items() if took_s > SLOW_S)


if __name__ == "__main__":
    LIST.write_text("\n".join([*listed(Path(sys.argv[1])), ""]), "utf-8")
