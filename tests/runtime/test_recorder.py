"""The recorder: one statement for all runs, none counted twice, none lost in an outage."""

import trio

from cortex.actors.runner import Run
from cortex.domain.errors import OutcomeUnknownError, UnavailableError
from cortex.runtime.maintenance.recorder import RunRecorder
from cortex.store.background import runners as store
from cortex.store.background.runners import RunnerRow
from tests.support.records.factories import Bench


def run(name: str = "retries", *, items: int = 0, error: Exception | None = None) -> Run:
    return Run(
        name=name,
        longest_s=1.0,
        started_at=trio.current_time(),
        duration_s=0.5,
        items=items,
        is_skipped=False,
        error=error,
    )


async def rows(bench: Bench) -> dict[str, RunnerRow]:
    return {row.name: row for row in await bench.port(store.page)}


async def test_runs_are_summed_up_and_recorded_once(bench: Bench) -> None:
    recorder = RunRecorder(bench.port, holder="pod", rng=bench.rng)
    for _ in range(3):
        recorder.add(run(items=2))
    recorder.add(run("dispatch", error=ValueError("wrong")))
    await recorder.flush()
    await recorder.flush()
    found = await rows(bench)
    retries, dispatch = found["retries"], found["dispatch"]
    assert (retries.run_count, retries.item_count, retries.busy_s) == (3, 6, 1.5)
    assert (dispatch.error, dispatch.error_count) == ("ValueError: wrong", 1)
    assert retries.interval_s == 30.0, "none is late because of a short interval"


async def test_runs_refused_in_an_outage_are_recorded_later(bench: Bench) -> None:
    recorder = RunRecorder(bench.port, holder="pod", rng=bench.rng, tick_every_s=60.0)
    recorder.add(run(items=1))
    bench.port.refuse(store.record)
    try:
        await recorder.flush()
    except UnavailableError:
        recorder.add(run(items=1))
    await recorder.flush()
    found = await rows(bench)
    assert (found["retries"].run_count, found["retries"].item_count) == (2, 2)
    assert found["retries"].interval_s == 60.0


async def test_runs_with_an_unknown_outcome_are_not_recorded_twice(bench: Bench) -> None:
    recorder = RunRecorder(bench.port, holder="pod", rng=bench.rng)
    recorder.add(run(items=1))
    bench.port.lose_reply(store.record)
    try:
        await recorder.flush()
    except OutcomeUnknownError:
        await recorder.flush()
    assert (await rows(bench))["retries"].run_count == 1
