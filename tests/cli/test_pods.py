"""`cortex pods ls` of pods that leave."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from cortex.domain.drain import Moved, MovedGroup, PodState, Whereabouts
from cortex.store.pods import PodRow
from cortex.view.resources.pods import FIELDS
from tests.support.records.store_rows import a_pod_row

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def a_row(phase: str | None, running: int, **fields: Any) -> PodRow:
    def at(seconds: float) -> datetime:
        return NOW + timedelta(seconds=seconds)

    return a_pod_row(
        state=PodState.DRAINING,
        now=NOW,
        heartbeat_at=at(-0.4),
        draining_at=at(-12.5),
        running=running,
        phase=phase,
        phase_at=at(-2.5),
        abort_at=at(27.5 if phase in ("intake", "jobs") else -2.5),
        closed_at=at(7.5),
        **fields,
    )


@pytest.mark.parametrize(
    "phase, running, shown",
    [
        ("intake", 3, "◆ draining 12s · jobs 3 · abort in 27s"),
        ("jobs", 3, "◆ draining 12s · jobs 3 · abort in 27s"),
        ("jobs", 0, "◆ draining 12s · abort in 27s"),
        ("hand_back", 3, "◆ handing back 2s · jobs 3 · closed in 7s"),
        ("flush", 0, "◆ writing the rest 2s · closed in 7s"),
        ("sign_off", 0, "◆ signing off 2s · closed in 7s"),
    ],
)
def test_pods_ls_shows_the_phase_of_a_leaving_pod(phase: str, running: int, shown: str) -> None:
    (state,) = (column for column in FIELDS if column.name == "state")
    assert state.cell(a_row(phase, running), for_people=True).text == shown


def test_pods_ls_shows_a_draining_pod_of_an_older_version() -> None:
    (state,) = (column for column in FIELDS if column.name == "state")
    row = attrs.evolve(a_row(None, 3), phase_at=None, abort_at=None, closed_at=None)
    assert state.cell(row, for_people=True).text == "◆ draining 12s · jobs 3"


def test_pods_ls_shows_database_trouble_of_a_pod() -> None:
    (state,) = (column for column in FIELDS if column.name == "state")
    ready = attrs.evolve(
        a_row(None, 3),
        state=PodState.READY,
        trouble="no_connections",
        trouble_at=NOW - timedelta(seconds=7.5),
    )
    assert state.cell(ready, for_people=True).text == "! no connections 7s"
    assert state.cell(attrs.evolve(ready, trouble=None), for_people=True).text == "● ready"


def test_machines_get_the_phase_and_its_deadlines() -> None:
    assert {"phase", "phase_at", "abort_at", "closed_at"} <= {column.name for column in FIELDS}


@pytest.mark.parametrize(
    "state, running, shown",
    [
        ("READY", 3, '◆ drain requested 1m 30s · jobs 3 · by ana "deploy ⟦U+001B⟧"'),
        ("DRAINING", 3, '◆ draining 1m 30s · jobs 3 · by ana "deploy ⟦U+001B⟧"'),
        ("DRAINING", 0, '◆ drained 1m 30s · by ana "deploy ⟦U+001B⟧"'),
    ],
)
def test_pods_ls_shows_who_drains_a_pod_that_stays(state: str, running: int, shown: str) -> None:
    (column,) = (column for column in FIELDS if column.name == "state")
    row = attrs.evolve(
        a_row(None, running),
        state=PodState(state),
        drain_requested_at=NOW - timedelta(seconds=90),
        drain_requested_by="ana",
        drain_reason="deploy \x1b",
    )
    assert column.cell(row, for_people=True).text == shown


def test_pods_ls_shows_where_drained_jobs_moved() -> None:
    (state,) = (column for column in FIELDS if column.name == "state")
    row = a_row(
        None,
        0,
        drain_requested_at=NOW - timedelta(seconds=70),
        drain_requested_by="ana",
        drain_reason="",
    )
    runs = MovedGroup(what=Whereabouts.RUNS, pod="eu-2\x1b[2J", count=2)
    ended = MovedGroup(what=Whereabouts.ENDED, pod=None, count=1_000)
    moved = Moved(groups=(runs, ended), is_whole=False)
    shown = state.cell(attrs.evolve(row, moved=moved), for_people=True)
    output = "at least 1,002 moved (2 to eu-2⟦U+001B⟧[2J, 1,000 ended)"
    assert shown.text == f"◆ drained 1m 10s · by ana · {output}"
    lost = MovedGroup(what=Whereabouts.LOST, pod=None, count=3)
    moved = Moved(groups=(runs, ended, lost), is_whole=False)
    shown = state.cell(attrs.evolve(row, moved=moved), for_people=True)
    assert "at least 1,002 moved, 3 lost (" in shown.text
    nothing = Moved(groups=(), is_whole=True)
    shown = state.cell(attrs.evolve(row, moved=nothing), for_people=True)
    assert shown.text.endswith(" · 0 moved, 0 lost")
