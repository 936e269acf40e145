"""`python -m bench statements` runs every statement to its end; no rate is judged here."""

from tests.support.command_line import Cortex


def test_each_statement_is_measured_by_itself(cortex: Cortex) -> None:
    ended = cortex.bench(
        *("statements", "--batch", "7", "--batches", "2", "--repeat", "1", "--json")
    )
    figures = ended.document
    assert (figures["batch"], figures["batches"]) == (7, 2)
    for part in ("submit", "claim", "step", "end"):
        assert figures[f"{part}s_per_s"] > 0
        assert figures[f"pod_us_per_{part}"] > 0
        assert figures[f"wal_bytes_per_{part}"] > 100
