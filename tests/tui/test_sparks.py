"""Bars: pure text of a known size."""

from cortex_tui.render.sparks import BARS, UNKNOWN, spark


def test_largest_value_is_highest_and_zero_is_the_lowest_bar() -> None:
    assert spark([0, 1, 7]) == "▁▂▇"
    assert spark([7, 3.5, 0]) == "▇▄▁"


def test_small_values_are_visible_and_unknown_ones_marked() -> None:
    assert spark([0.001, 1000.0]) == "▂▇"
    assert spark([None, 2.0, None]) == f"{UNKNOWN}▇{UNKNOWN}"
    assert spark([None]) == UNKNOWN


def test_zero_values_are_flat() -> None:
    assert spark([0.0] * 4) == BARS[0] * 4
    assert spark([]) == ""


def test_a_value_takes_as_many_cells_as_it_is_given() -> None:
    assert spark([0, 1], each=3) == "▁▁▁▇▇▇"
