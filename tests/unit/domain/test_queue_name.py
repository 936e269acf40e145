"""Names of queues: the shown form can be typed back."""

from datetime import UTC, datetime, timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.errors import UsageError
from cortex.store.queues import QueueRow
from cortex.view.phrases import time_of_day
from cortex.view.queues import parse_queue, pause_text, queue_shown


@given(st.none() | st.text('abdeflut"', min_size=1, max_size=12) | st.just("default"))
def test_shown_queue_name_parses_back(queue: str | None) -> None:
    assert parse_queue(queue_shown(queue)) == queue


def test_default_queue_differs_from_a_queue_named_default() -> None:
    assert queue_shown(None) == "default"
    assert queue_shown("default") == '"default"'
    assert queue_shown("mail") == "mail"


@pytest.mark.parametrize("text", ["", "x" * 101])
def test_invalid_queue_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 100 characters"):
        parse_queue(text)


def test_pause_text_names_person_time_and_reason() -> None:
    now = datetime(2026, 7, 3, 12, 30, tzinfo=UTC)
    at = now - timedelta(minutes=28)
    row = QueueRow(
        queue="mail",
        paused_by="ana",
        paused_at=at,
        reason="deploy",
        is_strict=False,
        ready=0,
        running=0,
        later=0,
        is_capped=False,
        oldest_ready_s=None,
        now=now,
    )
    assert pause_text(row, now) == f'paused by ana {time_of_day(at, now)} "deploy"'
    at = now - timedelta(days=2)
    output = pause_text(attrs.evolve(row, paused_at=at), now)
    assert output == f'paused by ana {time_of_day(at, now)} "deploy"'
    assert f"{at.astimezone():%Y-%m-%d %H:%M}" in output
