"""`cortex bench` with several workers runs to its end; no rate is judged here."""

import pytest

from tests.support.command_line import Cortex


@pytest.mark.parametrize(
    "words, unit",
    [(("throughput", "--jobs", "40"), "job"), (("steps", "--jobs", "4"), "step")],
)
def test_a_pod_of_two_workers_is_measured(
    cortex: Cortex, words: tuple[str, ...], unit: str
) -> None:
    ended = cortex("bench", *words, "--workers", "2", "--repeat", "1", "--json")
    figures = ended.document
    assert figures["workers"] == 2
    assert figures[f"{unit}s_per_s"] > 0
    assert figures[f"pod_us_per_{unit}"] > 0
