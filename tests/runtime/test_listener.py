"""The listener: notifications become hints, and silence is found out."""

import os
import signal
from collections import deque
from typing import Any

import pytest
import trio
from attrs import define, field

from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.runtime.liveness.listener import Listener
from cortex.store import pods
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import sql
from tests.support.servers.private_postgres import PrivatePostgres


@define
class Ears:
    """Events that the listener reported."""

    hints: "deque[str]" = field(factory=deque)
    controls: int = 0
    breakers: int = 0
    messages: int = 0
    wakes: int = 0
    limits: int = 0

    def on_control(self) -> None:
        self.controls += 1

    def on_breaker(self) -> None:
        self.breakers += 1

    def on_outbox(self) -> None:
        self.messages += 1

    def on_wakes(self) -> None:
        self.wakes += 1

    def on_limit(self) -> None:
        self.limits += 1

    def forget(self) -> None:
        self.hints.clear()
        self.controls = self.breakers = self.messages = self.wakes = self.limits = 0


async def listening(bench: Bench) -> tuple[Listener, Ears]:
    """A connected listener whose first reports are cleared."""
    ears = Ears()
    listener = Listener(
        bench.port,
        pod_id=bench.pod.id,
        rng=bench.rng,
        on_task=ears.hints.append,
        on_control=ears.on_control,
        on_breaker=ears.on_breaker,
        on_outbox=ears.on_outbox,
        on_wakes=ears.on_wakes,
        on_limit=ears.on_limit,
    )
    await bench.start(listener)
    await eventually_async(lambda: listener.latency_ms is not None, what="it hears itself")
    assert list(ears.hints) == ["queued"]
    heard = (ears.controls, ears.breakers, ears.messages, ears.wakes, ears.limits)
    assert heard == (1, 1, 1, 1, 1)
    ears.forget()
    return listener, ears


async def test_new_work_is_hinted_at_with_its_kind(bench: Bench) -> None:
    _, ears = await listening(bench)
    await bench.submit(5)
    await eventually_async(lambda: list(ears.hints) == ["ready"], what="one hint a statement")
    await bench.submit(queue_name="q")
    await eventually_async(lambda: list(ears.hints) == ["ready", "queued"], what="the other kind")


async def test_listener_reports_control_of_its_own_pod_only(bench: Bench, database: str) -> None:
    _, ears = await listening(bench)
    for pod in (str(new_id()), "", str(bench.pod.id)):
        sql(database, "SELECT pg_notify('cortex_control', $1)", pod)
    await eventually_async(lambda: ears.controls, what="its own control")
    assert ears.controls == 1


async def test_listener_reports_changes_of_any_breaker(bench: Bench, database: str) -> None:
    _, ears = await listening(bench)
    sql(database, "SELECT pg_notify('cortex_breaker', '')")
    await eventually_async(lambda: ears.breakers == 1, what="the change")


async def test_the_latency_of_a_hint_is_measured(bench: Bench) -> None:
    listener, _ = await listening(bench)
    assert listener.latency_ms is not None
    assert 0 < listener.latency_ms < 5000


async def test_lost_session_is_replaced_and_missed_work_hinted(bench: Bench, database: str) -> None:
    listener, ears = await listening(bench)
    sql(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query ILIKE 'listen%'",
    )
    await eventually_async(lambda: list(ears.hints) == ["queued"], what="it listens again")
    assert ears.controls == 1
    await eventually_async(lambda: listener.latency_ms is not None, what="it hears itself again")
    await bench.submit()
    await eventually_async(lambda: "ready" in ears.hints, what="hints arrive again")


async def test_a_black_hole_is_found_by_its_own_probe(
    private_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error would show it: the connection stays open, and nothing comes."""
    monkeypatch.setattr("cortex.runtime.liveness.listener.PROBE_EVERY_S", 0.05)
    monkeypatch.setattr("cortex.runtime.liveness.listener.PROBE_BOUND_S", 0.3)
    profile = Profile(dsn=private_postgres.dsn, role=None)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as nursery:
        listener, ears = await listening(Bench(FaultyPort(port), nursery))
        (deaf,) = sql(
            private_postgres.dsn, "SELECT pid FROM pg_stat_activity WHERE query ILIKE 'listen%'"
        )
        os.kill(deaf["pid"], signal.SIGSTOP)
        try:
            await eventually_async(lambda: "queued" in ears.hints, what="it listens again")
            await eventually_async(lambda: listener.latency_ms is not None, what="and hears")
        finally:
            os.kill(deaf["pid"], signal.SIGCONT)
        nursery.cancel_scope.cancel()


async def test_listener_latency_is_unknown_until_it_hears_itself_again(
    bench: Bench,
) -> None:
    listener, _ = await listening(bench)
    for _ in range(3):
        bench.port.refuse(pods.probe)
    listener._pacer.wake()
    await eventually_async(lambda: listener.latency_ms is None, what="it does not know")
    await eventually_async(lambda: listener.latency_ms is not None, what="it hears itself again")
    assert bench.port.faults_left == 0


async def test_end_of_the_listener_closes_its_session(bench: Bench, database: str) -> None:
    async with trio.open_nursery() as intake:
        inner = Bench(bench.port, intake)
        await listening(inner)
        intake.cancel_scope.cancel()

    def sessions() -> Any:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE $1"
        return sql(database, query, "listen%")

    await eventually_async(lambda: not sessions(), what="the session is closed")
