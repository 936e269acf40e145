"""Results become the types that JSON has, or are refused with the place that has no such form."""

from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from uuid import UUID

import attrs
import pytest

from cortex.agent.plain import plain
from cortex.domain.canonical import DEPTH_MAX
from cortex.durable.structuring import MisfitError


class Colour(Enum):
    RED = "red"


@attrs.frozen
class Found:
    path: Path
    lines: tuple[int, ...]
    inner: "Found | None" = None


@pytest.mark.parametrize(
    "value, expected",
    [
        (Found(Path("/a"), (1, 2)), {"path": "/a", "lines": [1, 2], "inner": None}),
        ({Colour.RED: [Colour.RED]}, {"red": ["red"]}),
        ({7: "a", date(2026, 1, 2): "b", True: "c"}, {"7": "a", "2026-01-02": "b", "true": "c"}),
        ({"b", "a"}, ["a", "b"]),
        (UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ((None, True, 1, 1.5, "a"), [None, True, 1, 1.5, "a"]),
    ],
)
def test_values_get_their_json_form(value: object, expected: object) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    "value, output",
    [
        (b"x", "is bytes, which JSON has no form for"),
        # The declared type says Path; what counts is what is there.
        ({"a": [Found(b"x", ())]}, "a[0].path is bytes, which"),  # type: ignore[arg-type]
        ({(1,): 2}, "has the key (1,), but JSON keys are text"),
        (object(), "is object, which"),
        (len, "is builtin_function_or_method, which"),
    ],
)
def test_value_without_json_form_is_named(value: object, output: str) -> None:
    with pytest.raises(MisfitError) as caught:
        plain(value)
    assert str(caught.value).startswith(output)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(MisfitError, match=f"deeper than {DEPTH_MAX}"):
        plain(loop)
