"""Whether anything gets slower as finished jobs pile up: the same calls on two databases, in turns.

One has a page of finished jobs, the other as many as asked for. Each call is measured in both, one
after the other, so that whatever else the machine does is the same for both.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final
from uuid import UUID

import trio

from bench import jobs as bench_jobs
from cortex.domain.clock import Chance, system_chance
from cortex.domain.job import Claim, Finish, JobStatus, Submission
from cortex.domain.job_filter import parse_filter
from cortex.postgres import scratch
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.postgres.session import run, run_alone
from cortex.store import job_pages, jobs, pulse, screen_head, tasks
from cortex.view.cells import Cell
from cortex.view.resource import Field

FEW: Final = 10_000
"""More than a page of each state: a list reads the same number of rows in both databases."""
CLAIMED: Final = 20
SLOWER_MAX: Final = 1.1
TYPE: Final = "bench_aged"
POD: Final = UUID(int=1)
WARM_UP: Final = 20

Call = Callable[[Port, Chance], Awaitable[float]]


def aged(few: str, many: str, *, jobs: int, rounds: int) -> list[dict[str, Any]]:
    """Fill both databases and measure; a row for each call, with the medians in milliseconds."""
    for dsn, count in ((few, FEW), (many, jobs)):
        profile = Profile(dsn=dsn, role=None, connections_max=1)
        run(profile, partial(_fill, count=count))
        run_alone(partial(scratch.settle, dsn))
    return [_compare(what, few, many, rounds=rounds) for what in CALLS]


async def _fill(db: Any, *, count: int) -> None:
    await bench_jobs.fill_finished(db, count)


def _compare(what: str, few: str, many: str, *, rounds: int) -> dict[str, Any]:
    for dsn in (few, many):
        run_alone(partial(scratch.settle_queue, dsn))
    few_ms, many_ms = (
        median(each) * 1000
        for each in trio.run(partial(_time_in_turns, CALLS[what], few, many, rounds=rounds))
    )
    ratio = many_ms / few_ms
    return {
        "what": what,
        "few_ms": round(few_ms, 3),
        "many_ms": round(many_ms, 3),
        "ratio": round(ratio, 3),
        "ok": ratio <= SLOWER_MAX,
    }


async def _time_in_turns(
    call: Call, few: str, many: str, *, rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds that each round took in either database."""
    chance = system_chance()
    taken: tuple[list[float], list[float]] = ([], [])
    async with (
        open_port(Profile(dsn=few, hot_path=True), rng=chance.rng) as in_few,
        open_port(Profile(dsn=many, hot_path=True), rng=chance.rng) as in_many,
    ):
        for nth in range(WARM_UP + rounds):
            for seconds, port in zip(taken, (in_few, in_many), strict=True):
                spent = await call(port, chance)
                if nth >= WARM_UP:
                    seconds.append(spent)
    return taken


async def _timed(
    port: Port, method: Callable[..., Awaitable[Any]], *args: Any, **named: Any
) -> float:
    began = time.perf_counter()
    await port(method, *args, **named)
    return time.perf_counter() - began


async def _claim(port: Port, chance: Chance) -> float:
    """Time one claim; its jobs end afterwards."""
    await port(jobs.submit, [Submission(id=chance.new_id(), type=TYPE) for _ in range(CLAIMED)])
    began = time.perf_counter()
    claims: list[Claim] = await port(tasks.claim, pod_id=POD, types=[TYPE], limit=CLAIMED)
    spent = time.perf_counter() - began
    ends = [Finish(lease=each.lease, status=JobStatus.COMPLETED, result="1") for each in claims]
    await port(jobs.finish, pod_id=POD, operations=ends)
    return spent


async def _end(port: Port, chance: Chance) -> float:
    await port(jobs.submit, [Submission(id=chance.new_id(), type=TYPE) for _ in range(CLAIMED)])
    claims: list[Claim] = await port(tasks.claim, pod_id=POD, types=[TYPE], limit=CLAIMED)
    ends = [Finish(lease=each.lease, status=JobStatus.COMPLETED, result="1") for each in claims]
    return await _timed(port, jobs.finish, pod_id=POD, operations=ends)


def _page(text: str) -> Call:
    async def call(port: Port, _: Chance) -> float:
        return await _timed(port, job_pages.page, parse_filter(text), limit=50)

    return call


def _read(method: Callable[..., Awaitable[Any]], **named: Any) -> Call:
    async def call(port: Port, _: Chance) -> float:
        return await _timed(port, method, **named)

    return call


CALLS: Final[Mapping[str, Call]] = {
    f"claim {CLAIMED} jobs": _claim,
    f"end {CLAIMED} jobs": _end,
    "jobs ls": _page(""),
    "jobs ls status:fail": _page("status:fail"),
    "tui: jobs that run": _page("status:run,retry,appr"),
    "tui: head": _read(screen_head.head),
    "tui: pulse, attention": _read(pulse.attention),
}


def _ratio(row: Mapping[str, Any]) -> Cell:
    return Cell(f"{row['ratio']:.2f}", "" if row["ok"] else "fail")


COLUMNS: Final[Sequence[Field[Mapping[str, Any]]]] = (
    Field(name="what"),
    Field(name="few_ms", title="few jobs, ms", is_right=True),
    Field(name="many_ms", title="many jobs, ms", is_right=True),
    Field(name="ratio", title="times", shown=_ratio, is_right=True),
    Field(name="ok", is_default=False),
)
