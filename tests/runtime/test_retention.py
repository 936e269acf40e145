"""The runner of retention: batches, copies before deletions, kills and full disks."""

import json
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.actors.runner import IDLE, SOON_S, TickBudget, TickResult
from cortex.domain.clock import Chance
from cortex.domain.errors import ArchiveError, UnavailableError
from cortex.runtime.maintenance.retention import BATCH_MAX, Retention
from cortex.store.background import retention
from cortex.store.background.retention import RetentionPeriods
from tests.support.people import user
from tests.support.records.ended import an_ended_job, with_everything
from tests.support.records.factories import Bench
from tests.support.records.rows import job_count, move_clock
from tests.support.servers.postgres import sql

DAY_S = 86_400.0
DONE = "status = 'COMPLETED'"


async def keep(bench: Bench, folder: Path | None = None) -> None:
    periods = RetentionPeriods(
        completed_s=30 * DAY_S, archive=None if folder is None else str(folder)
    )
    await bench.port(retention.put, periods, by=user("ana"), reason="a test")


def a_runner(bench: Bench) -> Retention:
    return Retention(bench.port, rng=bench.rng, chance=Chance(bench.rng, lambda: 1))


async def tick(bench: Bench, **budget: Any) -> TickResult:
    return await a_runner(bench).tick(TickBudget(**budget))


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def archived(folder: Path) -> list[UUID]:
    rows = [json.loads(line) for path in files(folder) for line in path.read_text().splitlines()]
    return [UUID(row["row"]["id"]) for row in rows if row["table"] == "job_record"]


async def test_disabled_retention_costs_one_statement(bench: Bench, database: str) -> None:
    an_ended_job(database)
    assert await tick(bench) == TickResult(next_s=IDLE.cap_s)
    assert job_count(database, DONE) == 1


async def test_retention_tick_is_bounded_and_reports_more_due(bench: Bench, database: str) -> None:
    for _ in range(5):
        an_ended_job(database)
    await keep(bench)
    assert await tick(bench, items=3) == TickResult(items=3, next_s=SOON_S)
    # Each process continues where the last one ended.
    assert await tick(bench, items=3) == TickResult(items=2, next_s=IDLE.cap_s)
    assert await tick(bench, until=trio.current_time() - 1) == TickResult(next_s=SOON_S)
    assert job_count(database, DONE) == 0
    assert BATCH_MAX <= 1000


async def test_each_job_is_on_the_disk_before_it_is_deleted(
    bench: Bench, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [an_ended_job(database) for _ in range(3)]
    with_everything(database, jobs[0])
    await keep(bench, tmp_path)
    synced = []
    fsync = os.fsync

    def noting(handle: int) -> None:
        synced.append(job_count(database, DONE))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    assert (await tick(bench)).items == 3
    assert sorted(archived(tmp_path)) == sorted(jobs)
    assert synced == [3, 3, 3]  # the folder, the file, its name
    (path,) = files(tmp_path)
    assert path.suffix == ".jsonl"
    assert path.stat().st_mode & 0o077 == 0
    assert job_count(database, DONE) == 0


async def test_kill_before_the_deletion_copies_twice_and_loses_nothing(
    bench: Bench, database: str, tmp_path: Path
) -> None:
    job_id = an_ended_job(database)
    await keep(bench, tmp_path)
    bench.port.refuse(retention.delete)  # the copy is made, the deletion never comes
    with pytest.raises(UnavailableError, match="not there"):
        await tick(bench)
    assert (archived(tmp_path), job_count(database, DONE)) == ([job_id], 1)
    assert (await tick(bench)).items == 1
    assert (archived(tmp_path), job_count(database, DONE)) == ([job_id, job_id], 0)


async def test_unwritable_archive_deletes_nothing_and_raises(
    bench: Bench, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(bench, tmp_path / "not mounted")
    with pytest.raises(ArchiveError, match="cannot be written: No such file"):
        await tick(bench)  # before any job is old enough
    an_ended_job(database)
    await keep(bench, tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ArchiveError, match="No space left on device"):
            await tick(bench)
    assert (files(tmp_path), job_count(database, DONE)) == ([], 1)
    assert (await tick(bench)).items == 1


async def test_clock_jump_is_logged_once_and_deletes_nothing(
    bench: Bench, database: str, log_lines: list[MutableMapping[str, Any]]
) -> None:
    an_ended_job(database, days=5)
    await keep(bench)
    move_clock(database, 400 * DAY_S)
    runner = a_runner(bench)
    for _ in range(2):
        assert await runner.tick(TickBudget()) == TickResult(next_s=IDLE.cap_s)
    assert [line["event"] for line in log_lines] == ["retention held"]
    assert job_count(database, DONE) == 1


async def test_two_at_once_delete_each_job_once(
    bench: Bench, database: str, tmp_path: Path
) -> None:
    for _ in range(20):
        an_ended_job(database)
    await keep(bench, tmp_path)
    items: list[int] = []

    async def one() -> None:
        runner = a_runner(bench)
        while job_count(database, DONE):  # a tick beside the other one's is skipped
            items.append((await runner.tick(TickBudget(items=3))).items)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(one)
    assert sum(items) == 20
    assert len(set(archived(tmp_path))) == 20
    rest = sql(database, "SELECT count(*) AS n FROM cortex.job_history")[0]["n"]
    assert (job_count(database, DONE), rest) == (0, 0)
