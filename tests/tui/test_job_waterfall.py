"""The waterfall of a job, as text: rows, axis, zoom, folding, problems."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cortex.store.job_screen import WatchedStep
from cortex_tui.model.waterfall import WaterfallRow, next_problem, rows_of
from cortex_tui.render.waterfall import Zoom, axis_of, head_cells, room_of, row_cells
from tests.support.hostile import LINES, treacherous
from tests.support.records.job_rows import a_watched_job
from tests.support.terminal.tui_job import BEGAN, a_step

NOW = BEGAN + timedelta(seconds=100)
JOB: dict[str, Any] = {
    "status": "COMPLETED",
    "attempt": 1,
    "started_at": BEGAN,
    "finished_at": NOW,
    "heartbeat_at": None,
    "silent_after_s": 95.0,
    "zombie_s": 300.0,
    "running_since": None,
    "running_step": None,
    "attempts": [],
    "effects": [],
    "approvals": [],
}
TURN = [
    a_step(1, "1 model", "model", at_s=0, took_s=20),
    a_step(2, "1 fetch", "tool", at_s=20, took_s=30),
    a_step(3, "2 model", "model", at_s=50, took_s=50),
]


def rows(steps: Sequence[WatchedStep] = TURN, **job: Any) -> list[WaterfallRow]:
    folded = job.pop("folded", frozenset())
    return rows_of(a_watched_job({**JOB, **job}), steps, folded=folded)


def drawn(found: Sequence[WaterfallRow], width: int = 60, zoom: Zoom | None = None) -> list[str]:
    room = room_of(found, width)
    axis = axis_of(found, zoom or Zoom(), now=NOW, on=found[0])
    lines = [head_cells(room, axis), *(row_cells(row, room, axis, NOW) for row in found)]
    return ["".join(cell.text for cell in line).rstrip() for line in lines]


def test_bars_share_one_axis() -> None:
    lines = drawn(rows())
    bars = [line[20:].rstrip() for line in lines]
    assert bars[1].lstrip().startswith("█")
    assert bars[2].lstrip().startswith("──")
    assert [line.split()[-1] for line in lines[1:]] == ["20.0s", "30.0s", "50.0s"]


def test_calls_stand_below_the_answer_that_asked_for_them_and_fold_into_it() -> None:
    assert [row.depth for row in rows()] == [0, 1, 0]
    folded = rows(folded=frozenset({1}))
    assert [row.number for row in folded] == [1, 3]
    assert folded[0].hidden == 1
    assert folded[0].ended == BEGAN + timedelta(seconds=50), "with all that is folded into it"
    assert "▸ turn 1 · model +1" in drawn(folded)[1]


def test_an_attempt_that_ended_stands_where_it_ended() -> None:
    ended = {"attempt": 1, "ended_at": BEGAN + timedelta(seconds=50), "due_at": None}
    ended["error"] = None
    found = rows(attempts=[{**ended, "outcome": "pod_died"}])
    assert [row.key for row in found] == [("step", 1), ("step", 2), ("attempt", 1), ("step", 3)]
    assert "✗ pod died" in drawn(found)[3]


def test_open_rows_grow_to_now() -> None:
    call: dict[str, Any] = {"key": "2 pay", "tool": "pay", "status": "PENDING", "attempt": 1}
    call |= {"created_at": BEGAN + timedelta(seconds=60), "finished_at": None}
    ask: dict[str, Any] = {"key": "g", "tool": None, "status": "PENDING"}
    ask |= {"decided_at": None, "decided_by": None}
    ask |= {"created_at": BEGAN + timedelta(seconds=60)}
    found = rows(TURN[:2], finished_at=None, heartbeat_at=NOW, effects=[call], approvals=[ask])
    lines = drawn(found)
    assert lines[3].endswith("40.0s")
    assert "█▒" in lines[3]
    assert "░░" in lines[4]
    running = rows(TURN[:2], finished_at=None, heartbeat_at=NOW)
    assert "running" in drawn(running)[-1]


def test_running_row_begins_with_its_attempt() -> None:
    ended: dict[str, Any] = {"attempt": 1, "ended_at": BEGAN + timedelta(seconds=60)}
    ended |= {"outcome": "retry", "due_at": BEGAN + timedelta(seconds=90), "error": "503"}
    since = {"running_since": BEGAN + timedelta(seconds=90), "attempt": 2}
    goes_on = {"finished_at": None, "heartbeat_at": NOW}
    last = rows(TURN[:2], attempts=[ended], **goes_on, **since)[-1]
    assert (last.kind, last.began) == ("running", BEGAN + timedelta(seconds=90))


def test_bars_out_of_view_are_marked_at_the_edge() -> None:
    lines = drawn(rows(), zoom=Zoom(level=1, follows=True))
    assert "◂" in lines[1]
    lines = drawn(rows(), zoom=Zoom(level=3, follows=False))
    assert "▸" in lines[3]


def test_problems_are_found_around_the_end() -> None:
    steps = [*TURN, a_step(4, "2 fetch", "tool", at_s=99, is_error=True)]
    found = rows(steps)
    assert next_problem(found, 0, step=1) == 3
    assert next_problem(found, 3, step=1) == 3
    assert next_problem(found, 0, step=-1) == 3
    assert next_problem(rows(), 0, step=1) is None
    assert rows(steps, folded=frozenset({3}))[-1].is_problem, "seen though it is folded away"


def test_every_line_fits_and_escapes_hidden_text() -> None:
    usage = {"input_tokens": 10**6, "output_tokens": 5, "cache_read_tokens": 0}
    usage["cache_write_tokens"] = 0
    steps = [a_step(n, f"{n} {LINES}", "tool", usage=usage, cost_usd=1.5) for n in range(1, 9)]
    for width in (40, 60, 80, 200):
        for line in drawn(rows(steps), width):
            assert len(line) <= width
            assert treacherous(line) == []
