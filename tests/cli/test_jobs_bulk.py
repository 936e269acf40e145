"""`cortex jobs cancel --filter` and `retry --filter`: jobs are counted, confirmed, reported."""

import re

import pytest

from cortex.cli.pace import LATE_MAX_S, Pace
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.records.rows import submit, submit_many
from tests.support.servers.postgres import sql


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
    assert "cancel 120 jobs: needs confirmation, but there is no terminal" in done.err
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--limit", "120", "--yes", "--as", "ana")
    assert done.out == "120 cancelled\nmore may match: raise --limit, or run it again\n"
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
    "words, output",
    [
        ((), "no jobs given"),
        (("--filter", " "), "no jobs given"),
        (("aaaa", "--filter", "age<1h"), "give ids or a filter, not both"),
        (("aaaa", "--dry-run"), "--dry-run goes with --filter"),
        (("aaaa", "--rate", "1"), "--rate goes with --filter"),
        (("--filter", "age<1h", "--rate", "0"), "is not from 0.001"),
        (("--filter", "age<1h", "--rate", "nan"), "is not from 0.001"),
        (
            ("--filter", "age<1h", "--rate", "1", "--idempotency-key", "k"),
            "--rate does not go with --idempotency-key",
        ),
        (("--filter", "agee<1h"), "did you mean 'age'?"),
        (("--filter", "age<1h", "--limit", "10001"), "10001"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cortex: Cortex, words: tuple[str, ...], output: str
) -> None:
    for verb in ("cancel", "retry"):
        done = cortex("jobs", verb, *words)
        assert done.code == 2
        assert output in done.err


def test_at_a_rate_all_are_done_too(cortex: Cortex, life: Life) -> None:
    submit_many(life.dsn, 450, "work", {})
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--rate", "10000", "--yes")
    assert (done.code, done.out) == (0, "450 cancelled\n"), done.err
    assert left(life) == 0


def test_what_goes_at_a_rate_is_stopped_and_goes_on(cortex: Cortex, life: Life) -> None:
    submit_many(life.dsn, 31, "work", {})
    words = ("jobs", "cancel", "--filter", "age<1h", "--limit", "30", "--yes", "--rate")
    terminal = cortex.on_terminal(*words, "0.2", columns=120)
    terminal.read_until(lambda text: "of 30 · Ctrl-C stops" in text, what="how far it is")
    terminal.interrupt()
    assert terminal.end() == 130
    (output,) = re.findall(
        r"(\d+) cancelled(?:, (\d+) unknown: the reply was lost)?", terminal.text
    )
    changed, unsure = int(output[0]), int(output[1] or 0)
    assert 31 - left(life) in range(changed, changed + unsure + 1)
    assert f"{30 - changed - unsure} not begun" in terminal.text
    rest = f"--limit {30 - changed}"
    assert f"the same command with {rest} continues" in terminal.text
    assert cortex(*words[:4], *rest.split(), "--yes", "--rate", "1000").code == 0
    assert left(life) in range(1, 2 + unsure)


def test_what_fails_in_the_midst_is_told_with_what_was_done(cortex: Cortex, life: Life) -> None:
    """A batch that the database refuses changes nothing; those before it stay done."""
    bad = submit(life.dsn, "work", queue_name="bad")
    submit_many(life.dsn, 2, "work", {})
    sql(
        life.dsn,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$",
    )
    sql(
        life.dsn,
        "CREATE TRIGGER refuse BEFORE UPDATE ON cortex.job FOR EACH ROW "
        "WHEN (OLD.queue_name = 'bad') EXECUTE FUNCTION public.refuse()",
    )
    words = ("jobs", "cancel", "--filter", "age<1h", "--yes", "--rate", "2", "--json")
    done = cortex(*words)
    assert done.code == 1, done.err
    output = done.document
    assert (output["count"], output["left_count"], output["unsure_count"]) == (2, 1, 0)
    assert done.error
    assert left(life) == 1
    sql(life.dsn, "DROP TRIGGER refuse ON cortex.job")
    assert cortex(*words).document["count"] == 1
    rows = sql(life.dsn, "SELECT status FROM cortex.job WHERE id = $1", bad)
    assert [row["status"] for row in rows] == ["CANCELLED"]


@pytest.mark.parametrize("code", ["check_violation", "too_many_connections"])
def test_without_a_rate_it_is_told_too(cortex: Cortex, life: Life, code: str) -> None:
    submit(life.dsn, "work", queue_name="bad")
    submit_many(life.dsn, 450, "work", {})
    sql(
        life.dsn,
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$",
    )
    sql(
        life.dsn,
        "CREATE TRIGGER refuse BEFORE UPDATE ON cortex.job FOR EACH ROW "
        "WHEN (OLD.queue_name = 'bad') EXECUTE FUNCTION public.refuse()",
    )
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--yes")
    assert (done.code, left(life)) == (1, 51), done.err
    output = "400 cancelled, 51 not begun\nthe same command continues with the rest\n"
    assert done.out == output
    submit_many(life.dsn, 350, "work", {})
    done = cortex("jobs", "cancel", "--filter", "age<1h", "--yes", "--idempotency-key", "k")
    assert (done.code, done.out, left(life)) == (1, "", 401), "under a key all of it is undone"
    assert "before that" not in done.err


@pytest.mark.parametrize("rate, size", [(50.0, 25), (1.0, 1), (0.25, 1)])
def test_a_rate_is_kept_however_late_a_batch_is(rate: float, size: int) -> None:
    now, gone = [100.0], [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(rate, clock=lambda: now[0])
    assert pace.batch == size
    for number in range(40):
        pace.wait(pause, size)
        gone[0] += size
        took_s = now[0] - 100.0
        # As many as the rate lets through, the first batch, and what a late one makes up for.
        assert gone[0] <= rate * (took_s + LATE_MAX_S) + size
        now[0] += 30.0 if number == 20 else 0.01
    assert now[0] - 100.0 < 40 * size / rate + 31.0
