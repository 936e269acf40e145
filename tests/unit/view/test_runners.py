"""The words for background work: in lists, on the pulse screen, in the doctor."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from cortex.store.background.retention import Retention
from cortex.store.background.runners import RunnerRow
from cortex.store.pulse import Trouble
from cortex.view.doctor import Grade, of_pods, of_retention, of_runners
from cortex.view.resources.runners import RUNNERS
from cortex.view.runners import late_text, pulse_text

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def row(name: str = "retries", **fields: Any) -> RunnerRow:
    defaults: dict[str, Any] = {
        "interval_s": 30.0,
        "first_at": NOW - timedelta(hours=1),
        "started_at": NOW - timedelta(seconds=4),
        "duration_s": 0.012,
        "items": 3,
        "error": None,
        "holder": "vm:17",
        "succeeded_at": NOW - timedelta(seconds=4),
        "run_count": 9,
        "item_count": 3,
        "error_count": 0,
        "skip_count": 0,
        "skipped_in_a_row": 0,
        "busy_s": 1.0,
        "is_late": False,
        "now": NOW,
    }
    return RunnerRow(name=name, **(defaults | fields))


OK = row()
FAILED = row("outbox", error="it broke")
LATE = row("schedules", is_late=True, succeeded_at=NOW - timedelta(minutes=7))
NEVER = row("housekeeping", is_late=True, succeeded_at=None, started_at=None)
SKIPPED = row(started_at=None, succeeded_at=None, duration_s=None, items=None, holder=None)


def test_each_state_has_a_word() -> None:
    (state,) = (field for field in RUNNERS.fields if field.name == "state")
    words = [state.cell(each).text for each in (OK, FAILED, LATE, NEVER, SKIPPED)]
    assert words == ["● ok", "✗ failed", "! late 7m", "! late 1h", "○ skipped"]


def test_pulse_line_names_late_runners_first() -> None:
    assert pulse_text([]) == "no runner has run yet"
    assert pulse_text([OK]) == "1 runner ok"
    assert pulse_text([OK, SKIPPED]) == "2 runners ok"
    assert pulse_text([OK, FAILED, LATE]) == "late: schedules · failed: outbox"


def test_alert_names_age_and_error_safely() -> None:
    trouble = Trouble(
        kind="runner", name="outbox", word="LATE", at=NOW - timedelta(minutes=5), error="no\x1b[2J"
    )
    text = late_text(trouble, NOW)
    assert text.startswith("runner outbox has not succeeded for 5m")
    assert "\x1b" not in text


def test_doctor_fails_for_late_and_warns_for_failed_runners() -> None:
    grades = [of_runners(each).grade for each in ([OK], [OK, FAILED], [FAILED, LATE], [])]
    assert grades == [Grade.OK, Grade.WARN, Grade.FAIL, Grade.OK]
    assert "schedules" in of_runners([FAILED, LATE]).found


def test_doctor_shows_retention_and_why_it_is_held() -> None:
    setting = Retention(
        completed_s=30 * 86_400.0,
        facts_s=400 * 86_400.0,
        archive="/srv/old",
        changed_by="ana",
        changed_at=NOW,
        reason="",
        held_until=None,
        now=NOW,
    )
    failed = row("retention", error="the archive /srv/old cannot be written: No such file")
    held = attrs.evolve(setting, held_until=NOW)
    found = [
        of_retention(*each) for each in ((None, None), (setting, OK), (setting, failed), (held, OK))
    ]
    assert [each.grade for each in found] == [Grade.OK, Grade.OK, Grade.WARN, Grade.WARN]
    assert found[0].found == "off: finished jobs and facts are kept for ever"
    assert found[1].found == "completed 30d, facts 400d, copies go to /srv/old"
    assert found[2].found.startswith("nothing is deleted: the archive /srv/old cannot")
    assert found[3].found.startswith("held: the clock was moved")


def test_a_cluster_that_ticks_needs_no_pod() -> None:
    (found,) = of_pods([], version="1", due=7, has_ticks=True)
    assert (found.grade, found.found) == (Grade.OK, "none is needed: cortex tick runs the jobs")
    (found,) = of_pods([], version="1", due=7)
    assert found.grade is Grade.FAIL
