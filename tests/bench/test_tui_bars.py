"""`python -m bench tui` runs to its end, and its document has a shape: no bar is judged here."""

import sys

from bench.tui_bars import LOAD_LEAST, Bar
from tests.support.command_line import Cortex

KEYS = {"bar", "wanted", "measured", "ok", "under", "unit"}


def measured(cortex: Cortex, *parts: str) -> list[dict[str, object]]:
    only = [word for part in parts for word in ("--only", part)]
    small = ("--jobs", "2000", "--seconds", "0.5", "--events", "400")
    ended = cortex.bench("tui", *small, *only, "--json")
    sys.stdout.write(ended.out)
    rows: list[dict[str, object]] = ended.document["bars"]
    assert ended.code == (0 if all(row["ok"] for row in rows) else 1), ended.err
    assert all(row.keys() == KEYS for row in rows)
    return rows


def test_changes_and_memory_are_measured(cortex: Cortex) -> None:
    rows = measured(cortex, "changes", "memory")
    bars = {row["bar"]: row for row in rows}
    assert list(bars) == [
        "commit → painted, p95",
        "commit → painted, p99",
        "statements a second, changes",
        "memory",
        "memory, second half",
    ]
    assert (bars["commit → painted, p95"]["wanted"], bars["memory"]["unit"]) == (0.25, "MiB")
    for bar in ("commit → painted, p95", "memory"):
        assert isinstance(bars[bar]["measured"], float)
        assert bars[bar]["measured"] != 0


def test_bar_under_too_little_load_is_not_ok() -> None:
    few, enough = (
        Bar("processor", 1.0, "%", below=10, under="x events/s", of=of)
        for of in (LOAD_LEAST - 0.01, LOAD_LEAST)
    )
    assert enough.is_ok
    assert not few.is_ok
    assert few.row["under"] == "too little: x events/s"


def test_a_part_that_there_is_not_is_refused(cortex: Cortex) -> None:
    ended = cortex.bench("tui", "--only", "nothing")
    assert ended.code == 2
    assert "start" in ended.err
