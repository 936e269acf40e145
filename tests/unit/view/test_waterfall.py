"""The bars of both waterfalls: exact to an eighth of a cell, and never beyond the axis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.view.cells import width_of
from cortex.view.waterfall import Look, bar_text, lead_of, step_style

POSITIONS = st.floats(-50, 50)


@pytest.mark.parametrize(
    "begin, end, look, text",
    [
        (0, 2.5, Look.DONE, "██▌"),
        (1.5, 2, Look.DONE, "█"),
        (3, 3, Look.DONE, "▏"),
        (-4, 2, Look.DONE, "██"),
        (8, 40, Look.DONE, "██"),
        (0, 3, Look.RUNNING, "██▒"),
        (3, 3, Look.RUNNING, "▒"),
        (0, 2.4, Look.WAIT, "░░"),
        (0, 2.6, Look.WAIT, "░░░"),
        (3, 3, Look.WAIT, "░"),
    ],
)
def test_a_bar_has_its_true_length(begin: float, end: float, look: Look, text: str) -> None:
    assert bar_text(begin, end, 10, look) == text


@given(POSITIONS, POSITIONS, st.integers(1, 40), st.sampled_from(Look))
def test_a_bar_stays_on_its_axis(one: float, other: float, cells: int, look: Look) -> None:
    begin, end = sorted((one, other))
    bar = bar_text(begin, end, cells, look)
    assert bar
    assert lead_of(begin, cells) + width_of(bar) <= cells


def test_a_step_of_an_unknown_kind_has_a_plain_bar() -> None:
    assert (step_style("model"), step_style("saga")) == ("run", "")
