"""Costs of the hot path per unit, in counts that repeat: `python -m tests.support.hot_path`.

Prints each figure and its limit, and exits with 1 if one is over; `--write` takes today's figures,
with a margin, as the limits. No figure is a time:

- of `submit`, `claim`, `step` and `end`, the store's methods on batches of 500: statements and
  round trips per batch; per unit the changes of rows, new index entries and bytes that the server's
  log has of them, without full pages;
- of a `pod` that runs jobs of two steps: round trips per job;
- of `running` jobs whose handlers wait: bytes and blocks of Python's memory per job.
"""

import gc
import itertools
import math
import random
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from itertools import count, islice
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from cortex.domain.clock import uuid7_of
from cortex.domain.job import (
    Finish,
    JobStatus,
    Lease,
    NumberedStep,
    StepDone,
    StepKind,
    Submission,
)
from cortex.durable.context import Context
from cortex.durable.registry import Handler
from cortex.durable.tally import Tally
from cortex.postgres import connections
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.postgres.embedded.install import packaged
from cortex.postgres.session import Session, open_session
from cortex.store import jobs, steps, tasks
from tests.support.eventually import eventually_async
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.faulty_port import FaultyPort
from tests.support.servers.postgres import make_run_dir, migrate, remove_servers, sql
from tests.support.servers.private_postgres import PrivatePostgres, copy_of_original

BIN: Final = packaged().root / "bin"
LIMITS: Final = Path(__file__).parent.parent / "sql" / "hot_path_limits.tsv"
BATCH: Final = 500
STEPS: Final = 2
POD: Final = UUID(int=7)
POLL_S: Final = 0.02
HELD: Final = 1_000
MARGIN: Final = 1.03
MEMORY_MARGIN: Final = 1.1
POD_ROUND_TRIPS_MAX: Final = 0.1
"""Its batches are of any size, by time; something done for each job would be 1."""

RECORDS: Final = {
    "rows_inserted": r"Heap/INSERT.*|Heap2/MULTI_INSERT.*",
    "rows_updated": r"Heap/(HOT_)?UPDATE.*",
    "rows_updated_cold": r"Heap/UPDATE.*",  # with new index entries
    "rows_deleted": r"Heap/DELETE",
    "rows_locked": r"Heap/LOCK|Heap2/LOCK_UPDATED",
    "index_entries": r"Btree/(INSERT_LEAF|INSERT_POST|SPLIT_.)",
}
"""Figure to the types of records of the write-ahead log that it counts."""
OTHERS_RECORDS: Final = re.compile(r"Standby/.*|XLOG/.*")
"""Written by the server's own processes, by time."""
ROW: Final = re.compile(
    r"^(?P<type>\w+/\S+(?: \S+)*?)\s+(?P<count>\d+) \(.*?\)\s+(?P<bytes>\d+) \("
)
QUIET: Final = {
    "autovacuum": "off",
    "full_page_writes": "off",
    "fsync": "off",
    "checkpoint_timeout": "1d",
    "max_wal_size": "4GB",
}
"""Settings under which the server writes only what statements make it write."""

NUMBERS: Final = count()
Submit = Callable[[int], Awaitable[None]]


@attrs.define
class Traffic:
    """Traffic to the server on all connections of the store."""

    sent: Counter[str] = attrs.field(factory=Counter)

    def take(self) -> dict[str, float]:
        """Return the counts since the last call."""
        sent, self.sent = self.sent, Counter()
        return {
            "statements": sent["bind_execute"] + sent["query"],
            "round_trips": sum(sent.values()),
        }


@contextmanager
def counted_traffic() -> Iterator[Traffic]:
    """Count the messages of connections that are opened inside, each a round trip."""
    traffic = Traffic()
    messages = {"prepare", "bind_execute", "bind_execute_many", "query", "bind", "execute"}

    class Counting:
        def __init__(self, protocol: Any) -> None:
            self._protocol = protocol

        def __getattr__(self, name: str) -> Any:
            if name in messages:
                traffic.sent[name] += 1
            return getattr(self._protocol, name)

    class CountingConnection(connections.Connection):
        def __init__(self, protocol: Any, *args: Any, **options: Any) -> None:
            counting: Any = Counting(protocol)
            super().__init__(counting, *args, **options)

    original, connections.Connection = connections.Connection, CountingConnection  # type: ignore[misc]
    try:
        yield traffic
    finally:
        connections.Connection = original  # type: ignore[misc]


@contextmanager
def quiet_server(run_dir: Path) -> Iterator[PrivatePostgres]:
    """Run a migrated server that writes nothing by itself, in the directory of a run of tests."""
    home = copy_of_original(run_dir, bindir=BIN)
    try:
        server = PrivatePostgres(home, bindir=BIN)
        server.start()
        for name, value in QUIET.items():
            sql(server.dsn, f"ALTER SYSTEM SET {name} = '{value}'")
        server.stop()
        server.start()
        migrate(server.dsn)
        yield server
    finally:
        remove_servers(home)


def written(server: PrivatePostgres, since: str) -> dict[str, float]:
    """Return what has been written to the log since a position."""
    until = position(server)
    log = server.cluster.home / "pgdata" / "pg_wal"
    command = [str(BIN / "pg_waldump"), "--stats=record", "--path", str(log)]
    text = subprocess.run(
        [*command, "--start", since, "--end", until], check=True, capture_output=True, text=True
    ).stdout
    counts: Counter[str] = Counter()
    for found in filter(None, map(ROW.match, text.splitlines())):
        if OTHERS_RECORDS.fullmatch(found["type"]):
            continue
        counts["wal_bytes"] += int(found["bytes"])
        for figure, types in RECORDS.items():
            if re.fullmatch(types, found["type"]):
                counts[figure] += int(found["count"])
    return {figure: counts[figure] for figure in (*RECORDS, "wal_bytes")}


def position(server: PrivatePostgres) -> str:
    return str(sql(server.dsn, "SELECT pg_current_wal_flush_lsn()::text AS at")[0]["at"])


@attrs.define
class Meter:
    """Takes the cost of parts of the hot path from the server's log and from the traffic."""

    server: PrivatePostgres
    traffic: Traffic
    figures: dict[str, float] = attrs.field(factory=dict)

    @contextmanager
    def part(self, name: str, *, batches: int) -> Iterator[None]:
        """Note what the block costs, in which each batch is of `BATCH` units."""
        self.traffic.take()
        since = position(self.server)
        yield
        for figure, sent in self.traffic.take().items():
            self.figures[f"{name}.{figure}"] = sent / batches
        for figure, total in written(self.server, since).items():
            self.figures[f"{name}.{figure}"] = round(total / batches / BATCH, 3)


def figures(run_dir: Path) -> dict[str, float]:
    """Measure everything, on a new server."""
    with quiet_server(run_dir) as server, counted_traffic() as traffic:
        return {
            **batch_costs(server, traffic),
            **trio.run(pod_costs, server.dsn, traffic),
            **trio.run(held_costs, server.dsn),
        }


def batch_costs(server: PrivatePostgres, traffic: Traffic) -> dict[str, float]:
    """Return what submit, claim, step and end cost: per batch and per unit."""
    meter = Meter(server, traffic)
    with open_session(Profile(dsn=server.dsn, hot_path=True)) as store:
        for _ in range(2):  # the first one prepares statements and fills caches
            _run_batch(store, meter)
    return meter.figures


def _run_batch(store: Session, meter: Meter) -> None:
    batch = _submissions(BATCH)
    with meter.part("submit", batches=1):
        store(jobs.submit, batch)
    with meter.part("claim", batches=1):
        claims = store(tasks.claim, pod_id=POD, types=[JOB_TYPE], limit=BATCH)
    leases = [claim.lease for claim in claims]
    assert {lease.job_id for lease in leases} == {each.id for each in batch}
    with meter.part("step", batches=STEPS):
        for seq in range(1, STEPS + 1):
            operations = [_step(lease, seq) for lease in leases]
            assert len(store(steps.commit, pod_id=POD, operations=operations)) == BATCH
    ends = [Finish(lease=lease, status=JobStatus.COMPLETED, result="null") for lease in leases]
    with meter.part("end", batches=1):
        assert len(store(jobs.finish, pod_id=POD, operations=ends)) == BATCH


def _submissions(how_many: int) -> list[Submission]:
    """New jobs, of the same ids in each process."""
    ids = [uuid7_of(number, number) for number in islice(NUMBERS, how_many)]
    return [Submission(id=each, type=JOB_TYPE, payload="{}") for each in ids]


def _step(lease: Lease, seq: int) -> NumberedStep:
    head = f'{{"key": "add", "seq": {seq}}}'
    done = StepDone(
        lease=lease,
        kind=StepKind.STEP,
        key=f"add:{seq}",
        digest=bytes(32),
        duration_s=0.001,
        output=str(seq),
        ended_at=0.0,
        tally=Tally(()),
    )
    return NumberedStep(done, seq, head)


@asynccontextmanager
async def _pod(dsn: str, handler: Handler) -> AsyncIterator[tuple[Bench, Submit]]:
    """A pod's parts at work on its jobs, and what submits more of them."""
    rng = random.Random(1)
    profile = Profile(dsn=dsn, hot_path=True)
    async with open_port(profile, rng=rng) as port, trio.open_nursery() as nursery:
        pod = Bench(FaultyPort(port), nursery, slots=4 * HELD, rng=rng)
        pod.handle(handler)
        await pod.start(pod.committer)
        await pod.start(pod.dispatcher(poll_s=POLL_S))

        async def submit(how_many: int) -> None:
            await port(jobs.submit, _submissions(how_many))

        yield pod, submit
        nursery.cancel_scope.cancel()


async def held_costs(dsn: str) -> dict[str, float]:
    """Return what a running job takes of a pod's memory while its handler waits."""
    waiting = 0

    async def hold(ctx: Context) -> None:
        nonlocal waiting
        waiting += 1
        await trio.sleep_forever()

    async with _pod(dsn, hold) as (_, submit):

        async def grow(how_many: int) -> tuple[int, int]:
            wanted = waiting + how_many
            await submit(how_many)
            # A job is in the pod's list before its handler has run to its wait.
            await eventually_async(lambda: waiting == wanted, what="all handlers wait")
            gc.collect()
            return tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()

        await grow(HELD)
        tracemalloc.start()
        sizes = [await grow(HELD) for _ in range(3)]
        tracemalloc.stop()
    # The smaller difference is the one in which no table of the interpreter doubled.
    pairs = list(itertools.pairwise(sizes))
    return {
        "running.bytes": min(round((after[0] - before[0]) / HELD) for before, after in pairs),
        "running.blocks": min(round((after[1] - before[1]) / HELD) for before, after in pairs),
    }


async def pod_costs(dsn: str, traffic: Traffic) -> dict[str, float]:
    """Return the round trips for each job of two steps in a pod that has many to run."""
    done = 0

    async def steps_(ctx: Context) -> None:
        nonlocal done
        for number in range(STEPS):
            await ctx.step("add", _number, number)
        done += 1

    async with _pod(dsn, steps_) as (pod, submit):

        async def run(how_many: int) -> None:
            traffic.take()
            wanted = done + how_many
            await submit(how_many)
            await eventually_async(
                lambda: done == wanted and not len(pod.running), what="all jobs end"
            )

        await run(BATCH)
        await run(HELD)
    return {"pod.round_trips": traffic.take()["round_trips"] / HELD}


async def _number(number: int) -> int:
    return number


# --- limits


def limit_of(figure: str, value: float) -> float:
    """Return the limit of a figure that is at `value` today."""
    part, _, name = figure.partition(".")
    if part == "pod":
        return POD_ROUND_TRIPS_MAX
    if name in {"statements", "round_trips"}:
        return value
    margin = MEMORY_MARGIN if part == "running" else MARGIN
    return math.ceil(1000 * value * margin) / 1000


def over(measured: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Return the figures that are over their limits, or are in one of the two only."""
    alone = measured.keys() ^ limits.keys()
    return [
        figure
        for figure in {**measured, **limits}
        if figure in alone or measured[figure] > limits[figure]
    ]


def read_limits() -> dict[str, float]:
    _, *lines = LIMITS.read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return {figure: float(limit) for figure, _, limit in rows}


def write_limits(measured: Mapping[str, float]) -> None:
    rows = [f"{each}\t{value:g}\t{limit_of(each, value):g}" for each, value in measured.items()]
    LIMITS.write_text("\n".join(["figure\ttoday\tlimit", *rows, ""]), "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Print the figures; return 1 if one is over its limit."""
    if unknown := set(arguments) - {"--write"}:
        sys.stderr.write(f"unknown: {' '.join(unknown)}; there is --write\n")
        return 2
    run_dir, lock = make_run_dir()
    try:
        with redirect_stdout(sys.stderr):  # the seeds of chance
            measured = figures(run_dir)
    finally:
        remove_servers(run_dir)
        lock.close()
    if arguments:
        write_limits(measured)
    limits = read_limits()
    too_large = over(measured, limits)
    lines = [f"{'figure':<24}{'now':>12}{'limit':>12}"]
    for each in {**measured, **limits}:
        now, limit = measured.get(each, math.nan), limits.get(each, math.nan)
        lines.append(f"{each:<24}{now:>12,g}{limit:>12,g}{'  over' * (each in too_large)}")
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
