"""Clients submit jobs: typed, checked, once under a key, many at once, in any library."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex import Client, Context, SyncClient, job
from cortex.client import core
from cortex.domain.drain import Liveness
from cortex.domain.errors import (
    CortexError,
    InvalidValueError,
    KeyReusedError,
    UsageError,
)
from cortex.store import jobs
from tests.support.apps.client_app import Summary, digest, summarise
from tests.support.life import Life
from tests.support.logins import name_of
from tests.support.records.rows import job_row
from tests.support.servers.postgres import run_asyncio, sql

BEATS = Liveness.HEARTBEAT  # no session holds the locks of these pods
URLS = ["https://example.com/ä", "%s :name $1 '"]
IMPORTS = """
import sys
from cortex import Client, SyncClient, Handle
unwanted = {"textual", "anthropic", "hypercorn", "rich", "starlette", "trio_asyncio"}
print(sorted(unwanted & sys.modules.keys()))
"""


def in_asyncio(dsn: str, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with await Client.connect(dsn) as client:
            return await work(client)

    return run_asyncio(main)


def in_trio(dsn: str, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with await Client.connect(dsn) as client:
            return await work(client)

    return trio.run(main)


@pytest.mark.parametrize("run", [in_asyncio, in_trio])
def test_client_submits_with_all_options(web: str, database: str, run: Callable[..., Any]) -> None:
    at = datetime(2035, 1, 2, 3, tzinfo=UTC)

    async def work(client: Client) -> UUID:
        handle = await client.submit(
            digest,
            urls=URLS,
            queue="mail",
            priority=-3,
            run_at=at,
            tags=["b", "a"],
            by="ana",
            tenant="acme",
            max_retries=2,
            job_key="today",
        )
        return handle.id

    row = job_row(database, run(web, work))
    assert json.loads(row["payload"]) == {"urls": URLS}
    assert row["submitted_with"] == f"db:{name_of(web)}"
    shown = [row[name] for name in ("queue_name", "priority", "run_at", "tags", "submitted_by")]
    assert shown == ["mail", -3, at, ["a", "b"], f"{name_of(web)} (ana)"]
    assert [row[name] for name in ("tenant", "max_retries", "job_key")] == ["acme", 2, "today"]


def test_sync_client_submits_and_encodes_typed_arguments(web: str, database: str) -> None:
    with SyncClient(web) as client:
        given = {"summary": Summary(3, "x"), "priority": 9}
        handle = client.submit(summarise, payload=given, priority=2)
        row = job_row(database, handle.id)
        assert json.loads(row["payload"]) == {"summary": {"words": 3, "title": "x"}, "priority": 9}
        assert row["priority"] == 2
        with pytest.raises(UsageError, match="'priority' is an argument of job type 'summarise'"):
            client.submit(summarise, summary=Summary(3, "x"), priority=9)
        with pytest.raises(UsageError, match="payload and urls exclude each other"):
            client.submit(digest, payload={}, urls=[])
    with pytest.raises(UsageError, match="this client is closed"):
        client.submit(digest, urls=[])


def test_arguments_are_checked_by_the_handler_or_by_what_pods_take(web: str, life: Life) -> None:
    life.pod("pod-1", "digest", code="v1", takes=digest, liveness=BEATS)
    with SyncClient(web) as client:
        for job in (digest, "digest"):
            with pytest.raises(InvalidValueError) as caught:
                client.submit(job, url="x")
            text = "payload of 'digest' lacks urls; has an unknown key 'url'"
            assert (caught.value.message, caught.value.hint) == (text, "did you mean 'urls'?")
            with pytest.raises(InvalidValueError, match=r"payload\.limit must be"):
                client.submit_many(job, [{"urls": []}, {"urls": [], "limit": "many"}])
        client.submit("digest", urls=[])
        client.submit("unknown_to_all_pods", anything=1)
    assert len(sql(life.dsn, "SELECT FROM cortex.job")) == 2


def test_arguments_named_like_an_option_are_named_with_the_way_out(web: str, life: Life) -> None:
    @job
    async def raced(ctx: Context, key: str) -> None: ...

    life.pod("pod-1", "raced", code="v1", takes=raced, liveness=BEATS)
    with SyncClient(web) as client, pytest.raises(InvalidValueError) as caught:
        client.submit("raced", key="k-1")
    assert caught.value.message == "payload of 'raced' lacks key"
    assert caught.value.hint == "'key' is an option: give all arguments in payload={'key': …}"


def test_new_code_of_pods_counts_at_once(web: str, life: Life) -> None:
    life.pod("pod-1", "digest", code="v1", takes=digest, liveness=BEATS)
    with SyncClient(web) as client:
        with pytest.raises(InvalidValueError):
            client.submit("digest", urls="x")
        life.pod("pod-2", "digest", code="v2", takes=attrs_like_digest(), liveness=BEATS)
        client.submit("digest", urls="x")


def attrs_like_digest() -> Any:
    """A `digest` of newer code, which takes one address."""
    from cortex import Context, job  # noqa: PLC0415

    @job("digest")
    async def newer(ctx: Context, urls: str) -> None: ...

    return newer


def test_a_key_makes_repeated_submits_one_job(web: str, database: str) -> None:
    with SyncClient(web) as client:
        first = client.submit(digest, urls=["a"], key="import-8812")
        again = client.submit(digest, urls=["a"], key="import-8812", delay=5)
        assert again.id == first.id
        with pytest.raises(KeyReusedError, match='key "import-8812" was used for another submit'):
            client.submit(digest, urls=["b"], key="import-8812")
        with pytest.raises(CortexError, match="visible ASCII"):
            client.submit(digest, urls=["b"], key="with blank")
    assert len(sql(database, "SELECT FROM cortex.job")) == 1


def test_many_jobs_are_submitted_in_one_call_or_none(
    web: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SUBMIT_BATCH", 100)

    async def work(client: Client) -> None:
        given = [{"urls": [str(n)]} for n in range(350)]
        handles = await client.submit_many(digest, given, queue=None, tags=["bulk"])
        query = "SELECT payload->'urls'->>0 AS url FROM cortex.job WHERE id = ANY ($1)"
        assert len({row["url"] for row in sql(database, query, [h.id for h in handles])}) == 350
        order = "SELECT id FROM cortex.job ORDER BY worker_job_id"
        assert [row["id"] for row in sql(database, order)] == [each.id for each in handles]
        with pytest.raises(InvalidValueError, match=r"payload\.urls"):
            await client.submit_many(digest, [*given, {"urls": "one"}])
        assert await client.submit_many(digest, []) == []

    in_asyncio(web, work)
    assert len(sql(database, "SELECT FROM cortex.job")) == 350


def test_payloads_are_made_in_the_thread_of_their_caller(web: str) -> None:
    threads: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:  # as a queryset of Django, which belongs to its thread
        threads.append(threading.get_ident())
        yield {"urls": []}

    async def work(client: Client) -> None:
        await client.submit_many(digest, rows())

    in_trio(web, work)
    with SyncClient(web) as client:
        client.submit_many(digest, rows())
    assert threads == [threading.get_ident()] * 2


def test_submits_whose_reply_was_lost_insert_nothing_twice(
    shared: SyncClient, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_the_first(call: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, bool]:
        await call()
        return await call(), True

    monkeypatch.setattr(jobs, "SUBMIT_BATCH", 10)
    monkeypatch.setattr(core, "repeat_if_lost", lose_the_first)
    ids = {each.id for each in shared.submit_many(digest, [{"urls": []}] * 25)}
    ids |= {shared.submit(digest, urls=[]).id, shared.submit(digest, urls=[], key="k").id}
    assert {row["id"] for row in sql(database, "SELECT id FROM cortex.job")} == ids
    assert len(ids) == 27
    monkeypatch.setattr(core, "MANY_MAX", 24)
    with pytest.raises(UsageError, match="25 jobs are more than 24 in one transaction"):
        shared.submit_many(digest, [{"urls": []}] * 25)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"priority": "high"}, "priority 'high' is not a whole number from -32767 to 32767"),
        ({"delay": -1}, "delay -1 is not 0 to"),
        ({"delay": float("nan")}, "delay nan is not 0 to"),
        ({"run_at": datetime(2030, 1, 1)}, "is not an instant with a time zone"),  # noqa: DTZ001
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "exclude each other"),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, "is not an instant of the years 1 to 9999"),
        ({"tags": ["\ud800"]}, "is not text of 1 to 100 characters"),
        ({"tags": "eu"}, "tags 'eu' are not up to 20 words in a list"),
        ({"tags": ["x" * 101]}, "is not text of 1 to 100 characters"),
        ({"key": ""}, "key '' is not text of 1 to 200 characters"),
        ({"timeout_s": 10**7}, "timeout_s 10000000 is not a whole number from 1 to"),
        ({"timeout_s": 604_800}, "timeout_s 604800 is above the hard limit of 'digest'"),
        ({"traceparent": "x"}, "traceparent"),
        ({"queue": "bulk"}, "queue 'bulk' is for bulk operations"),
        ({"agent": "nobody"}, 'agent "nobody" does not exist'),
    ],
)
def test_options_out_of_bounds_are_named(
    shared: SyncClient, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CortexError) as caught:
        shared.submit(digest, urls=[], **options)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "job, arguments, message",
    [
        (len, {}, "len is not a job type"),
        ("bulk", {}, "bulk operations are not submitted by hand"),
        ("digest\0", {}, "is not text of 1 to 100 characters"),
        ("run_agent", {}, "run_agent needs an agent"),
        ("execute_tool", {"tool": "x"}, 'job type "execute_tool" may not be submitted by'),
        ("no such", {}, 'job type "no such" is not valid'),
        ("digest", {"urls": float("inf")}, "JSON does not have"),
        ("digest", {"urls": "x" * 300_000}, "payload of 'digest'"),
        ("digest", {"urls": object()}, "is not JSON"),
    ],
)
def test_unsubmittable_jobs_are_named(
    shared: SyncClient, job: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(CortexError) as caught:
        shared.submit(job, **arguments)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_an_id_of_no_job_is_refused_when_the_handle_is_made(shared: SyncClient) -> None:
    with pytest.raises(UsageError, match="'7f3a' is not the id of a job"):
        shared.handle("7f3a")


def test_client_needs_no_other_parts_of_cortex() -> None:
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_client_of_another_event_loop_or_process_says_so(web: str) -> None:

    async def use_elsewhere(client: Client) -> None:
        with pytest.raises(UsageError, match="belongs to another event loop"):
            await asyncio.to_thread(run_asyncio, lambda: client.submit(digest, urls=[]))
        with pytest.raises(UsageError, match="belongs to another event loop"):
            await asyncio.to_thread(trio.run, partial(client.submit, digest, urls=[]))

    in_asyncio(web, use_elsewhere)
    with SyncClient(web) as forked:
        child = os.fork()
        if child == 0:
            try:
                forked.submit(digest, urls=[])
            except UsageError as error:
                os._exit(7 if "before the process forked" in error.message else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_client_outside_of_an_event_loop_names_the_other_one() -> None:
    coroutine = Client.connect("postgresql://nobody@/nowhere")
    with pytest.raises(UsageError) as caught:
        coroutine.send(None)
    assert caught.value.hint == "use SyncClient in code without one"
