"""Any login may send and hear any notification: none holds text, and forged ones do no harm."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import trio

from cortex.domain.answer_text import AnswerPiece, Message, payloads
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import SUBMITTER_ROLE, Profile
from cortex.runtime.clients.answer_listener import AnswerListener
from cortex.runtime.liveness.listener import HINTS_APART_S, LIMITS_APART_S, Listener
from cortex.store import clients, watches
from tests.support.eventually import eventually_async
from tests.support.logins import login_with
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

SQL = Path(__file__).parents[2] / "sql"
SENT = re.compile(
    r"pg_notify\((?:'\w+'(?: \|\| replace\([^()]*\))?|\$1), ((?:[^()]|\([^()]*\))+)\)"
)
PAYLOADS = {
    "'ready'": "a word of ours",
    "'queued'": "a word of ours",
    "'message'": "a word of ours",
    "'subscriptions'": "a word of ours",
    "'effects:all'": "a word of ours",
    "''": "nothing",
    "id::text": "a pod, or a number",
    "a.pod_id::text": "a pod",
    "p.pod_id::text": "a pod",
    "string_agg(w.job_id::text, ',')": "jobs of the client, whose channel nobody else knows",
    "max(id)::text": "a number",
    "number::text": "a number of the benchmark",
    "$2": "the probe of a pod to itself: nothing",
}
FLOOD = 500
FORGED = ["", "ready", "queued", "'; DROP TABLE cortex.job; --", "{" * 7_000, "\x1b[31m", "1,2,x"]


def test_each_payload_is_a_word_or_an_id() -> None:
    texts = {path: path.read_text("utf-8") for path in SQL.glob("*/*.sql")}
    calls = Counter[str]()
    for path, text in texts.items():
        code = re.sub(r"--.*", "", text)
        found = SENT.findall(code)
        assert len(found) == code.count("pg_notify("), path
        calls.update(found)
    assert calls.keys() == PAYLOADS.keys()


async def flood(dsn: str, channel: str) -> None:
    """Send many forged notifications, each of its own transaction, as a login that may submit."""

    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            for count in range(FLOOD):
                payload = FORGED[count % len(FORGED)]
                await connection.execute("SELECT pg_notify($1, $2)", channel, payload)
        finally:
            connection.terminate()

    await trio.to_thread.run_sync(lambda: run_asyncio(run))


class CountingPort(Port):
    """A port that counts calls by the name of their method."""

    def __init__(self, port: Port) -> None:
        super().__init__(port._island, port._db, port._profile)
        self.calls: Counter[str] = Counter()

    async def cross(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.calls[method.__name__] += 1
        return await super().cross(method, *args, **options)


@pytest.fixture
async def port(shared_database: str) -> AsyncIterator[CountingPort]:
    profile = Profile(dsn=shared_database, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as opened:
        yield CountingPort(opened)


@pytest.mark.parametrize(
    "channel",
    ["cortex_control", "cortex_breaker", "cortex_outbox", "cortex_wake", "cortex_limit"],
)
async def test_a_flood_of_hints_costs_a_pod_little(
    port: CountingPort, nursery: trio.Nursery, shared_database: str, channel: str
) -> None:
    heard: Counter[str] = Counter()
    listener = Listener(
        port,
        pod_id=new_id(),
        rng=seeded_random(),
        on_task=lambda _: None,
        on_control=lambda: heard.update(["cortex_control"]),
        on_breaker=lambda: heard.update(["cortex_breaker"]),
        on_outbox=lambda: heard.update(["cortex_outbox"]),
        on_wakes=lambda: heard.update(["cortex_wake"]),
        on_limit=lambda: heard.update(["cortex_limit"]),
    )
    await nursery.start(listener.run)
    await eventually_async(lambda: listener.latency_ms is not None, what="it hears itself")
    began = trio.current_time()
    with login_with(shared_database, SUBMITTER_ROLE) as dsn:
        await flood(dsn, channel)
    if channel != "cortex_control":  # of that one, none names this pod
        await eventually_async(lambda: heard[channel] >= 2, what="one is heard after the first")
    apart_s = LIMITS_APART_S if channel == "cortex_limit" else HINTS_APART_S
    assert heard[channel] <= (trio.current_time() - began) / apart_s + 2
    assert listener.latency_ms is not None, "its connection is whole"


async def test_a_flood_of_forged_output_reads_little_and_hides_none(
    port: CountingPort, nursery: trio.Nursery, shared_database: str
) -> None:
    heard: list[Message] = []
    listener = AnswerListener(port, new_id=new_id, rng=seeded_random())
    listener.hear = heard.append
    job_id = new_id()
    await nursery.start(listener.run)
    listener.watch(job_id)
    await eventually_async(lambda: port.calls["watch"], what="it watches")
    began = trio.current_time()
    with login_with(shared_database, SUBMITTER_ROLE) as dsn:
        await flood(dsn, watches.CHANNEL)
    assert heard == []
    assert port.calls["said"] <= (trio.current_time() - began) / watches.SAID_APART_S + 2
    piece = AnswerPiece(job_id=job_id, attempt=1, key="a", call=1, offset=0, end=2, text="hi")
    await port(watches.send, payloads([piece]))
    await eventually_async(lambda: heard == [piece], what="the real output")


def test_a_listener_to_output_hears_no_text(shared_database: str) -> None:
    async def run(dsn: str) -> list[str]:
        listener = await asyncpg.connect(dsn)
        found: list[str] = []
        try:
            await listener.add_listener(watches.CHANNEL, lambda *args: found.append(args[-1]))
            sql(shared_database, SAY, "a secret plan")
            while not found:
                await listener.execute("SELECT 1")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await listener.fetch("SELECT payload FROM cortex.said")
        finally:
            listener.terminate()
        return found

    with login_with(shared_database, SUBMITTER_ROLE) as dsn:
        (payload,) = run_asyncio(lambda: run(dsn))
    assert payload.isdecimal()


SAY = """
    WITH kept AS (INSERT INTO cortex.said (payload) VALUES ($1) RETURNING id)
    SELECT pg_notify('cortex_stream', max(id)::text) FROM kept
"""


async def test_a_client_takes_a_forged_end_for_a_hint(
    port: CountingPort, shared_database: str
) -> None:
    """Its channel is random; even so, no payload ends a wait or its connection."""
    ended: list[list[UUID]] = []
    client, job_id = new_id(), new_id()
    session = port.dedicated(on_lost=lambda: None)
    await port.open(session)
    await port.cross(clients.listen, session, client, ended.append)
    for payload in [*FORGED, str(job_id)]:
        sql(shared_database, "SELECT pg_notify($1, $2)", f"cortex_client_{client.hex}", payload)
    await eventually_async(lambda: [job_id] in ended, what="the last one is heard")
    assert ended == [[]] * len(FORGED) + [[job_id]]
    assert session.is_open
    await port.close(session)
