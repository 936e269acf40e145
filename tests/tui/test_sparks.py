"""Bars: pure text of a known size."""

from cortex_tui.render.sparks import BARS, UNKNOWN, spark


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
