"""Times: local with their zone on terminals, UTC for everything else."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cortex
from cortex.cli.failures import report
from cortex.domain.errors import ConflictError
from cortex.domain.phrases import utc_time
from cortex.view.phrases import at_instant, clock_time, date_time, day_time, localised, time_of_day
from cortex_tui.render.words import failed

HOMES = {"cortex/domain/phrases.py", "cortex/view/phrases.py", "cortex/http/page/rendering.py"}
"""Where instants become text; the last has no terminal whose zone it could use."""
AT = datetime(2026, 11, 23, 13, 46, 55, 120_000, tzinfo=UTC)


@pytest.fixture(params=["UTC", "Europe/Berlin", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_times_for_people_name_their_zone(zone: str) -> None:
    day, clock = {
        "UTC": ("13:46:55Z", "13:46:55.1Z"),
        "Europe/Berlin": ("14:46:55 CET", "14:46:55.1 CET"),
        "Asia/Kolkata": ("19:16:55 IST", "19:16:55.1 IST"),
    }[zone]
    assert (day_time(AT), clock_time(AT)) == (day, clock)
    assert date_time(AT) == at_instant(AT, is_tty=True) == f"2026-11-23 {day}"


@pytest.mark.usefixtures("zone")
def test_times_for_programs_are_utc() -> None:
    assert at_instant(AT, is_tty=False) == "2026-11-23T13:46:55.120Z"


def test_a_time_of_day_names_its_zone_and_another_day(zone: str) -> None:
    short = {"UTC": "13:46Z", "Europe/Berlin": "14:46 CET", "Asia/Kolkata": "19:16 IST"}[zone]
    assert time_of_day(AT, AT) == short
    assert time_of_day(AT, AT + timedelta(days=2)) == f"2026-11-23 {short}"


def test_errors_are_utc_for_programs_and_local_on_a_terminal(
    zone: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {
        "UTC": "2026-11-23 13:46:55Z",
        "Europe/Berlin": "2026-11-23 14:46:55 CET",
        "Asia/Kolkata": "2026-11-23 19:16:55 IST",
    }[zone]
    error = ConflictError(f"it was revoked by bo at {utc_time(AT)}: \x1b[2J")
    assert failed(error) == f"it was revoked by bo at {local}: ⟦U+001B⟧[2J"
    assert localised(str(AT)) == str(AT), "only what we write ourselves"
    report(error, ["tokens", "revoke", "--json"])
    assert "at 2026-11-23T13:46:55Z" in capfd.readouterr().err
    report(error, ["tokens", "revoke"])
    assert "at 2026-11-23T13:46:55Z" in capfd.readouterr().err, "it is piped"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    report(error, ["tokens", "revoke"])
    assert f"at {local}" in capfd.readouterr().err


def test_instants_become_words_in_one_place() -> None:
    root = Path(cortex.__file__).parent.parent
    paths = [*(root / "cortex").rglob("*.py"), *(root / "tui").rglob("*.py")]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in paths
        if path.relative_to(root).as_posix() not in HOMES
        for line in path.read_text("utf-8").splitlines()
        if re.search(r":%(Y-|H:)|strftime", line)
    ]
    assert found == []
