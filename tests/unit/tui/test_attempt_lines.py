"""How the attempts at a job ended, and what followed."""

from datetime import timedelta
from typing import Any, Final

import pytest

from cortex_tui.model.waterfall import WaterfallRow
from cortex_tui.render.attempt_lines import attempt_lines
from tests.support.records.job_rows import NOW, a_detail, a_watched_job

ENDED: Final = {"attempt": 1, "outcome": "retry", "ended_at": NOW, "error": "529"}
LATER: Final = NOW + timedelta(seconds=40)
BEGAN_AGAIN: Final = {"id": 2, "new": "RUNNING", "attempt": 2, "at": LATER}
JOB: Final = WaterfallRow(
    key=("attempt", 1), name="", kind="attempt", style="", began=NOW, ended=NOW
)


def text(job: dict[str, Any], *history: dict[str, Any]) -> str:
    """Return all that is said about the attempts of a job."""
    row = a_watched_job(job)
    lines = attempt_lines(JOB, a_detail({"history": history}), row, NOW, 100)
    return "\n".join("".join(cell.text for cell in line) for line in lines)


@pytest.mark.parametrize(
    "due_at, history, words",
    [
        (LATER, (), "waits 40"),
        (LATER, (BEGAN_AGAIN,), "waited 40"),
        (None, (BEGAN_AGAIN,), "waited 40"),
        (NOW, (), None),
        (None, (), None),
    ],
)
def test_wait_after_an_attempt_is_shown_if_its_end_is_known(
    due_at: object, history: tuple[dict[str, Any], ...], words: str | None
) -> None:
    shown = text(
        {"status": "RETRY", "attempt": 1, "attempts": [{**ENDED, "due_at": due_at}]}, *history
    )
    assert "529" in shown
    assert words in shown if words else "wait" not in shown


def test_last_attempt_of_a_failed_job_waits_for_nothing() -> None:
    shown = text({"status": "FAILED", "attempt": 1, "finished_at": NOW, "error_message": "no disk"})
    assert "no disk" in shown
    assert "wait" not in shown
