"""`cortex logs`: what jobs logged, for people and programs, of one job and of all."""

import json
from uuid import UUID

import pytest

from cortex.domain.job import Lease
from cortex.domain.log_line import Level, LogLine
from cortex.store import logs
from tests.support.command_line import Cortex
from tests.support.life import Life


def keep(life: Life, job_id: UUID, number: int, message: str, **fields: object) -> None:
    known: dict[str, object] = {
        "lease": Lease(job_id, int(str(fields.pop("attempt", 1)))),
        "job_type": "digest",
        "traceparent": None,
        "number": number,
        "written_at": 0.0,
        "level": Level.INFO,
        "step": None,
        "source": None,
        "message": message,
        "fields": None,
    }
    life.call(logs.keep, [LogLine(**{**known, **fields})], now=1.0)  # type: ignore[arg-type]


@pytest.fixture
def job_id(life: Life) -> UUID:
    """A job with lines of two attempts."""
    made = life.job()
    keep(life, made, 1, "read \x1b[2J", step="load", fields='{"n": 1, "who": "a b"}')
    keep(life, made, 2, "broken\nTraceback …\nValueError", level=Level.ERROR)
    keep(life, made, 3, "again", attempt=2)
    keep(life, made, 4, "7 lines are missing here: why", dropped=7, level=Level.WARNING, attempt=2)
    return made


def test_lines_are_shown_with_step_level_and_attempt(cortex: Cortex, job_id: UUID) -> None:
    ended = cortex("logs", str(job_id)[-7:])
    assert ended.code == 0, ended.err
    assert [line.partition("Z  ")[2] or line for line in ended.out.splitlines()] == [
        'info      load              read ⟦U+001B⟧[2J  n=1 who="a b"',
        "error     ·                 broken",
        "    Traceback …",
        "    ValueError",
        "── attempt 2",
        "info      ·                 again",
        "warning   ·                 7 lines are missing here: why",
    ]
    for words in (["jobs", "logs"], ["logs", "job"], ["log"]):
        assert cortex(*words, str(job_id)).out == ended.out, words


@pytest.mark.parametrize(
    "options, numbers",
    [
        ([], [1, 2, 3, 4]),
        (["--level", "warning"], [2, 4]),
        (["--attempt", "2"], [3, 4]),
        (["--step", "load"], [1]),
        (["--limit", "2"], [3, 4]),
        (["--limit", "0"], []),
    ],
)
def test_lines_are_filtered(
    cortex: Cortex, job_id: UUID, options: list[str], numbers: list[int]
) -> None:
    ended = cortex("logs", str(job_id), *options, "--json")
    assert [row["number"] for row in ended.document["logs"]] == numbers


def test_a_followed_log_ends_with_its_job(cortex: Cortex, life: Life, job_id: UUID) -> None:
    pod = life.pod()
    life.finish(pod, life.claim(pod))
    ended = cortex("logs", str(job_id), "-f", "--limit", "1", "-o", "jsonl")
    assert ended.code == 0, ended.err
    (row,) = map(json.loads, ended.out.splitlines())
    assert (row["number"], row["dropped"], row["job_type"]) == (4, 7, None)


def test_lines_of_all_jobs_are_listed_by_level(cortex: Cortex, life: Life, job_id: UUID) -> None:
    other = life.job()
    keep(life, other, 9, "of another job", level=Level.CRITICAL)
    ended = cortex("logs", "--all", "--level", "error")
    assert [
        line.split("digest")[-1].strip() for line in ended.out.splitlines() if "Z " in line
    ] == [
        "·                 broken",
        "·                 of another job",
    ]
    rows = cortex("logs", "--all", "--json").document["logs"]
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 9]
    assert str(job_id) in {row["job_id"] for row in rows}


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "name one job, or --all"),
        (["1", "--all"], "name one job, or --all"),
        (["--all", "--step", "x"], "--attempt and --step are for the log of one job"),
        (["1", "--since", "1h"], "--since and --before are for --all"),
        (["--all", "-f", "-o", "yaml"], "does not support format yaml"),
        (["--all", "--level", "loud"], "loud"),
        (["0123456789"], "no job ends with"),
        (["019f0000-0000-7000-8000-000000000000"], "8000-000000000000 does not exist"),
        (["019f0000-0000-7000-8000-000000000000", "-f"], "8000-000000000000 does not exist"),
    ],
)
def test_invalid_request_is_refused(cortex: Cortex, words: list[str], message: str) -> None:
    ended = cortex("logs", *words)
    assert ended.code != 0
    assert message in ended.err
