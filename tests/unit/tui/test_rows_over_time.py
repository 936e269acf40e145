"""Rows of tables as time goes on between two readings."""

from datetime import timedelta

from cortex_tui.render.table import evolved, moved_on
from tests.support.records.job_rows import NOW, a_listed_job


def test_a_row_moves_on_without_a_copy_and_without_a_change_of_what_was_read() -> None:
    row = a_listed_job({"id": 1, "status": "RUNNING", "now": NOW})
    own = evolved(row, NOW + timedelta(seconds=1))
    later = NOW + timedelta(seconds=2)
    assert moved_on(own, row, later) is own
    assert (own.now, row.now) == (later, NOW)


def test_a_row_that_is_drawn_itself_is_not_changed() -> None:
    row = a_listed_job({"id": 1, "status": "RUNNING", "now": NOW})
    assert moved_on(row, row, NOW + timedelta(seconds=2)).now == NOW
