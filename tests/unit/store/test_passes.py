"""When a pass wants to be called again."""

import pytest

from cortex.store.passes import DuePass


@pytest.mark.parametrize(
    "due_in_s, next_s", [(None, 5.0), (-3.0, 0.5), (0.2, 0.5), (2.0, 2.0), (60.0, 5.0)]
)
def test_next_pass_is_due_within_its_bounds(due_in_s: float | None, next_s: float) -> None:
    done = DuePass(count=0, is_skipped=False, due_in_s=due_in_s)
    assert done.next_s(least_s=0.5, most_s=5.0) == next_s
