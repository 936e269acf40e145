"""`python -m bench abuse` runs to its end, and its document has a shape: no bar is judged here."""

from tests.support.command_line import Cortex


def test_jobs_are_measured_beside_an_attack(cortex: Cortex) -> None:
    ended = cortex.bench("abuse", "--seconds", "0.5", "--only", "sign-in flood", "--json")
    assert ended.out, ended.err
    rows = ended.document["attacks"]
    assert [row["attack"] for row in rows] == ["idle", "sign-in flood"]
    assert all(row["jobs"] > 0 and row["p99_ms"] >= row["p50_ms"] > 0 for row in rows)
    assert ended.code == (0 if all(row["ok"] for row in rows) else 1), ended.err


def test_an_attack_that_there_is_not_is_refused(cortex: Cortex) -> None:
    ended = cortex.bench("abuse", "--only", "siege")
    assert ended.code == 2
    assert "connection churn" in ended.err
