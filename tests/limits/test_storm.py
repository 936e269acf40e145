"""Limits under kills: the short form of `python -m chaos limits`, and its judge."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.limits.judge import Verdict, judge
from chaos.limits.storm import Note, Storm, bench_in, storm
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import make_home, remove_servers

Storming = Callable[..., Verdict]


@pytest.fixture(scope="module")
def limits_bench(run_dir: Path) -> Iterator[Storming]:
    """Judges a storm over jobs of twenty keys."""
    folder = make_home(run_dir)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        bench = bench_in(folder)
        runner.run(bench.__aenter__())

        def after(*, count: int, kills: int) -> Verdict:
            seed = seeded_random().getrandbits(32)
            found = storm(bench, count=count, keys=20, kills=kills, seed=seed)
            return judge(runner.run(found))

        try:
            yield after
        finally:
            runner.run(bench.__aexit__(None, None, None))
            remove_servers(folder)


def test_killed_pods_exceed_no_limit_and_starve_no_key(limits_bench: Storming) -> None:
    verdict = limits_bench(count=400, kills=1)
    assert verdict.problems == ()
    assert (verdict.jobs, verdict.kills) == (400, 1)


# --- the judge alone


def notes(*lines: tuple[str, int, str, bool, float]) -> list[Note]:
    names = ("job_id", "pid", "key", "is_begin", "at_s")
    return [Note(**dict(zip(names, line, strict=True))) for line in lines]  # type: ignore[arg-type]


def test_run_of_a_killed_pod_lasts_until_its_death() -> None:
    written = notes(
        *[(f"j{n}", 1, "a", True, 0.0) for n in range(5)],
        ("j5", 2, "a", True, 4.0),
        ("j5", 2, "a", False, 6.0),
    )
    for dead_at_s, most in ((5.0, 6), (3.0, 5)):
        found = Storm(
            jobs_of={"a": 6},
            notes=written,
            killed_at_s={1: dead_at_s},
            statuses={"COMPLETED": 6},
        )
        assert judge(found).most_of_key == most
        assert judge(found).is_good is (most == 5)


def test_lost_jobs_and_places_are_found() -> None:
    found = Storm(jobs_of={"a": 2}, statuses={"COMPLETED": 1, "FAILED": 1}, places_left=3)
    assert judge(found).problems == (
        "not all jobs completed: {'COMPLETED': 1, 'FAILED': 1}",
        "3 places are held, and no job runs",
    )


def test_judge_finds_a_key_that_waits_for_the_jobs_of_another() -> None:
    first = [(f"a{n}", 1, "a", True, n + 0.1) for n in range(30)]
    found = Storm(jobs_of={"a": 30, "b": 30}, notes=notes(*first), statuses={"COMPLETED": 60})
    assert "a key was 30 jobs behind another one" in judge(found).problems
