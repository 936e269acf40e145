"""Bars and big digits: pure text of a known size."""

import pytest

from cortex_tui.render.sparks import BARS, DIGIT_LINES, UNKNOWN, digits, spark


def test_the_largest_value_is_highest_and_nothing_is_the_lowest_bar() -> None:
    assert spark([0, 1, 7]) == "▁▂▇"
    assert spark([7, 3.5, 0]) == "▇▄▁"


def test_what_is_small_is_seen_and_what_is_unknown_is_told() -> None:
    assert spark([0.001, 1000.0]) == "▂▇"
    assert spark([None, 2.0, None]) == f"{UNKNOWN}▇{UNKNOWN}"
    assert spark([None]) == UNKNOWN


def test_nothing_at_all_is_flat() -> None:
    assert spark([0.0] * 4) == BARS[0] * 4
    assert spark([]) == ""


def test_a_value_takes_as_many_cells_as_it_is_given() -> None:
    assert spark([0, 1], each=3) == "▁▁▁▇▇▇"


@pytest.mark.parametrize("text", ["0", "12", "1000+", "59s", "0123456789"])
def test_digits_are_three_lines_of_one_width(text: str) -> None:
    for gap in (0, 1):
        lines = digits(text, gap=gap)
        assert len({len(line) for line in lines}) == 1
        assert len(lines) == DIGIT_LINES


def test_every_digit_looks_different() -> None:
    assert len({digits(sign) for sign in "0123456789"}) == 10


def test_what_is_no_digit_stands_in_the_last_line() -> None:
    first, second, third = digits("7s")
    assert (first, second, third) == ("──┐ ", "  │ ", "  │s")
