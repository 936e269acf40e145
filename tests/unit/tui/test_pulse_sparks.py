"""The sparklines of the first screen: which of them fit, and in what order they stand."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cortex.store.pulse import BUCKETS, COST_S, Recent
from cortex_tui.model.pulse import Pulse
from cortex_tui.render.pulse_sparks import lines_wanted, spark_lines
from tests.support.terminal.tui_dead import a_bucket

PULSE = Pulse(
    recent=Recent(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        buckets=(a_bucket(),) * BUCKETS,
        spent_usd=Decimal(1),
        spent_s=COST_S,
        calls=3,
    )
)


def labels(lines_max: int) -> list[str]:
    head, *lines = spark_lines(PULSE, 120, lines_max=lines_max)
    assert head[0].text.startswith("last 15 min")
    return [line[0].text.rstrip() for line in lines]


@pytest.mark.parametrize(
    "lines_max, shown",
    [
        (3, "started, failed"),
        (4, "started, done, failed"),
        (6, "started, done, failed, wait p50, cost an hour"),
        (8, "started, done, failed, wait p50, wait p95, cost an hour, spent"),
        (9, "started, done, failed, wait p50, wait p95, model p50, cost an hour, spent"),
    ],
)
def test_most_important_sparks_stay_in_order(lines_max: int, shown: str) -> None:
    assert labels(lines_max) == shown.split(", ")


def test_lines_wanted_equals_the_lines_shown() -> None:
    wanted = lines_wanted(PULSE)
    assert len(labels(wanted)) == len(labels(wanted + 9)) == wanted - 1
    assert len(list(spark_lines(Pulse(), 80, lines_max=9))) == lines_wanted(Pulse())
