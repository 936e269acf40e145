"""Steps in words."""

import pytest

from cortex.view.steps import last_step, numbered_step, step_label


@pytest.mark.parametrize(
    "key, label",
    [
        ("1 model", "turn 1 · model"),
        ("2 read_file#2", "turn 2 · read_file (2nd)"),
        ("12 refund approval#3", "turn 12 · refund approval (3rd)"),
        ("fetch", "fetch"),
        ("fetch#11", "fetch (11th)"),
        ("fetch#21", "fetch (21st)"),
        ("read page 2", "read page 2"),
        ("issue #", "issue #"),
        ("#2", "#2"),
        ("7", "7"),
        ("", ""),
        ("2 two\nlines", "turn 2 · two\nlines"),
    ],
)
def test_step_key_becomes_a_label(key: str, label: str) -> None:
    assert step_label(key) == label


def test_last_step_shows_its_number() -> None:
    assert numbered_step(7, "2 read_file#2") == "7 · turn 2 · read_file (2nd)"
    assert last_step("7 2 read_file#2") == "7 · turn 2 · read_file (2nd)"
    assert last_step("3 plan") == "3 · plan"
    assert last_step("odd") == "odd"
