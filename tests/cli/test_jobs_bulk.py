"""`cortex jobs cancel --filter` and `retry --filter`: many jobs, counted, agreed to, told."""

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.postgres import sql
from tests.support.rows import submit, submit_many


def left(life: Life) -> int:
    rows = sql(life.dsn, "SELECT count(*) AS n FROM cortex.job WHERE status = 'PENDING'")
    return int(rows[0]["n"])


def test_a_dry_run_counts_and_changes_nothing(cortex: Cortex, life: Life) -> None:
    for queue in ("mail", "mail", None):
        submit(life.dsn, "work", queue_name=queue)
    done = cortex("jobs", "cancel", "--filter", "queue:mail", "--dry-run")
    assert (done.code, done.out) == (0, "dry run: 2 would be cancelled\n")
    found = cortex("jobs", "retry", "--filter", "type:work", "--dry-run", "--json").document
    assert (found["is_dry_run"], found["count"], found["refused"]) == (True, 0, {"untried": 3})
    assert left(life) == 3


def test_those_that_fit_are_cancelled_and_counted(cortex: Cortex, life: Life) -> None:
    submit_many(life.dsn, 150, "work", {})
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--limit", "120", "--reason", "old")
    assert (done.code, left(life)) == (2, 150), done.err
    assert "cancel 120 jobs: nobody can be asked here" in done.err
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--limit", "120", "--yes", "--as", "ana")
    assert done.out == "120 cancelled\nmore may fit: raise --limit, or run it again\n"
    assert left(life) == 30
    again = cortex("jobs", "cancel", "--filter", "status:canc,pend", "--yes", "--json").document
    assert (again["count"], again["has_more"]) == (30, False)
    rows = sql(life.dsn, "SELECT cancelled_by, count(*) AS n FROM cortex.job GROUP BY 1")
    assert {row["n"] for row in rows if row["cancelled_by"] == "ana"} == {120}
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--yes")
    assert (done.code, done.out) == (0, "0 cancelled\n")


@pytest.mark.parametrize("typed, changed", [("y", False), ("99", False), ("101", True)])
def test_over_a_hundred_the_number_is_typed(
    cortex: Cortex, life: Life, typed: str, changed: bool
) -> None:
    submit_many(life.dsn, 101, "work", {})
    terminal = cortex.on_terminal("jobs", "cancel", "--filter", "age<1h")
    terminal.read_until(lambda text: "to go on" in text, what="it asks")
    terminal.type(f"{typed}\r")
    assert terminal.end() == (0 if changed else 1)
    assert left(life) == (0 if changed else 101)
    assert ("101 cancelled" if changed else "nothing was done") in terminal.text


@pytest.mark.parametrize(
    "words, told",
    [
        ((), "which jobs?"),
        (("--filter", " "), "which jobs?"),
        (("aaaa", "--filter", "age<1h"), "give ids or a filter, not both"),
        (("aaaa", "--dry-run"), "--dry-run goes with --filter"),
        (("--filter", "agee<1h"), "did you mean 'age'?"),
        (("--filter", "age<1h", "--limit", "10001"), "10001"),
    ],
)
def test_what_makes_no_sense_is_refused(cortex: Cortex, words: tuple[str, ...], told: str) -> None:
    for verb in ("cancel", "retry"):
        done = cortex("jobs", verb, *words)
        assert done.code == 2
        assert told in done.err
