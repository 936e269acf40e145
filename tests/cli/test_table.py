import io
import time
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.cli.screen.table import lines_of
from cortex.cli.screen.terminal import Terminal
from cortex.domain.phrases import rfc3339, short_id, span, to_plain
from cortex.view.cells import Cell, fit, pad, width_of
from cortex.view.phrases import age, count, exact, money, size
from cortex.view.resource import Field

SHOWN = st.text(st.sampled_from("abc é日本🙂 \uff57e\u0301"))


def terminal(*, is_tty: bool = True) -> Terminal:
    return Terminal(
        stream=io.StringIO(), is_tty=is_tty, has_color=False, is_ascii=False, moves_cursor=False
    )


@pytest.mark.parametrize(
    "text, cells", [("abc", 3), ("日本", 4), ("🙂", 2), ("e\u0301", 1), ("\x1b[31mred\x1b[0m", 3)]
)
def test_cells(text: str, cells: int) -> None:
    assert width_of(text) == cells


@given(SHOWN, st.integers(1, 30))
def test_fit_cuts_exactly_the_text_that_is_too_wide(text: str, width: int) -> None:
    cut = fit(text, width)
    assert width_of(cut) <= width
    assert (cut == text) == (width_of(text) <= width)
    assert width_of(pad(cut, width)) == width
    assert width_of(pad(cut, width, right=True)) == width


def test_seconds_are_exact_to_the_millisecond() -> None:
    row = {"took_s": 1.2345678, "count": 3, "share": 0.12345, "idle_s": None}
    columns: list[Field[dict[str, float | None]]] = [Field(name=name) for name in row]
    lines = lines_of(columns, [row], terminal=terminal(is_tty=False), headers=False)
    assert list(lines) == ["1.235\t3\t0.12345\t"]


@given(st.lists(st.tuples(SHOWN, SHOWN), min_size=1))
def test_columns_are_aligned(rows: list[tuple[str, str]]) -> None:
    columns: list[Field[dict[str, str]]] = [
        Field(name="a", shown=lambda r: Cell(r["a"])),
        Field(name="|", shown=lambda _: Cell("|")),
        Field(name="b", shown=lambda r: Cell(r["b"])),
    ]
    shown = [{"a": a, "b": b, "|": ""} for a, b in rows]
    wide = Terminal(
        stream=io.StringIO(), is_tty=True, has_color=False, is_ascii=False, moves_cursor=False
    )
    lines = list(lines_of(columns, shown, terminal=wide, headers=True))
    if max(width_of(line) for line in lines) < 40:
        assert len({width_of(line.partition("|")[0]) for line in lines}) == 1


@pytest.mark.parametrize("is_tty, shown", [(True, "14:46:55 CET"), (False, "T13:46:55.000Z")])
def test_an_instant_is_local_on_terminals_and_utc_elsewhere(
    monkeypatch: pytest.MonkeyPatch, *, is_tty: bool, shown: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        row = {"at": datetime(2026, 11, 23, 13, 46, 55, tzinfo=UTC)}
        (line,) = lines_of(
            [Field(name="at")], [row], terminal=terminal(is_tty=is_tty), headers=False
        )
        assert line.endswith(shown)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "seconds, shown",
    [
        (-1, "0ms"),
        (0.0842, "84ms"),
        (3.21, "3.2s"),
        (59.9, "59s"),
        (151, "2m 31s"),
        (18_720, "5h 12m"),
        (273_700, "3d 4h"),
    ],
)
def test_spans(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    "seconds, shown",
    [(-2, "now"), (0.9, "now"), (3, "3s"), (150, "2m"), (7200, "2h"), (9e5, "10d")],
)
def test_ages(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_figures() -> None:
    assert [count(n) for n in (0, 999, 1200, 3_400_000)] == ["0", "999", "1.2k", "3.4M"]
    assert [size(n) for n in (12, 2048, 88_000_000)] == ["12 B", "2 kB", "84 MB"]
    assert [money(m) for m in (0, Decimal("0.0021"), 0.08, 1.5, 1234.5)] == [
        *("$0", "$0.0021", "$0.0800", "$1.50", "$1,234.50")
    ]
    assert short_id(UUID(int=0x9F3A1C)) == "…9f3a1c"


def test_machines_get_exact_values() -> None:
    instant = datetime(2026, 11, 20, 9, 5, 3, 7000, tzinfo=UTC)
    assert rfc3339(instant) == "2026-11-20T09:05:03.007Z"
    assert to_plain({"at": instant, "cost": Decimal("0.5"), "id": UUID(int=1), "raw": b"\x01"}) == {
        "at": "2026-11-20T09:05:03.007Z",
        "cost": 0.5,
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "01",
    }
    assert exact({"a": [1, None]}) == '{"a":[1,null]}'
    assert exact(None) == "\N{EN DASH}"
    assert exact([True]) == "[true]"


def test_no_terminal_gets_the_full_text() -> None:
    rows = [{"a": "x" * 300}]
    lines = list(
        lines_of([Field(name="a", least=5)], rows, terminal=terminal(is_tty=False), headers=False)
    )
    assert lines == ["x" * 300]


def test_a_wide_table_is_never_cut() -> None:
    columns: list[Field[dict[str, str]]] = [
        Field(name="text", least=1),
        Field(name="more", is_spare=True),
    ]
    row = {"text": "x" * 500, "more": "y" * 500}
    (cut,) = lines_of(columns, [row], terminal=terminal(), headers=False)
    assert width_of(cut) <= terminal().width
    (whole,) = lines_of(columns, [row], terminal=terminal(), headers=False, is_fitted=False)
    assert whole.split() == [*row.values()]
