"""Places in a JSON value: found from what people write, shown as people read."""

from typing import Any

import pytest

from cortex.domain.canonical import MISSING, WHOLE, Path, field_of, find

ORDER = {"lines": [{"price": 3}, {"price": None}], "a.b": 1, "to": "x", "0": "zero"}


@pytest.mark.parametrize(
    "dotted, found",
    [
        ("to", "x"),
        ("lines.0.price", 3),
        ("lines.1.price", None),
        ("0", "zero"),
        ("lines", ORDER["lines"]),
        ("lines.2.price", MISSING),
        ("lines.-1.price", MISSING),
        ("lines.\u0660.price", MISSING),
        (f"lines.{'9' * 5_000}", MISSING),
        ("lines.price", MISSING),
        ("to.0", MISSING),
        ("a.b", MISSING),
        ("", MISSING),
        ("gone", MISSING),
    ],
)
def test_dotted_path_finds_one_place_or_nothing(dotted: str, found: Any) -> None:
    assert find(ORDER, dotted) is found or find(ORDER, dotted) == found != MISSING


@pytest.mark.parametrize(
    "path, output",
    [
        ((), WHOLE),
        (("order", "lines", 0, "unit-price"), "order.lines[0].unit-price"),
        ((2,), "[2]"),
        (("a.b", "c"), '["a.b"].c'),
        (("x", ""), 'x[""]'),
        (("x", "a\u202eb\n"), 'x["a⟦U+202E⟧b\\n"]'),
        (("x", "\ud800"), 'x["⟦U+D800⟧"]'),
    ],
)
def test_path_is_shown_with_nothing_hidden(path: Path, output: str) -> None:
    assert field_of(path) == output
