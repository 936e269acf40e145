"""Signing in is bounded before anything of the form is parsed; large bodies do not hold jobs up."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from cortex.domain.errors import UnavailableError
from cortex.domain.idempotency import request_digest
from cortex.domain.policy import JobPolicy
from cortex.http.framework import apart, idempotent
from cortex.http.framework.apart import Apart
from cortex.http.framework.api import SIGN_IN_RATE
from cortex.http.framework.auth import MISSES_MAX
from cortex.http.page import signing_in
from cortex.http.page.signing_in import FORM_BYTES_MAX
from cortex.store import jobs
from tests.support.servers.http_server import HttpServer

OWN = {"Sec-Fetch-Site": "same-origin"}
LARGE = apart.INLINE_BYTES + 1


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the forms that were parsed."""
    sizes: list[int] = []

    def fields_of(body: bytes) -> dict[str, str]:
        sizes.append(len(body))
        return {"token": "wrong"}

    monkeypatch.setattr(signing_in, "fields_of", fields_of)
    return sizes


def test_a_large_form_is_refused_unparsed(server: HttpServer, parsed: list[int]) -> None:
    form = b"token=".ljust(FORM_BYTES_MAX + 1, b"a")
    assert server.post("/sign-in", body=form, headers=OWN).status == 413
    assert parsed == []
    assert server.post("/sign-in", body=form[:-1], headers=OWN).status == 401
    assert parsed == [FORM_BYTES_MAX]


def test_a_guesser_is_refused_unparsed(server: HttpServer, parsed: list[int]) -> None:
    answers = [server.post("/sign-in", body=b"token=x", headers=OWN) for _ in range(MISSES_MAX + 2)]
    assert [each.status for each in answers[-2:]] == [429, 429]
    assert len(parsed) == MISSES_MAX


def test_signing_in_has_a_rate_of_its_own(server: HttpServer) -> None:
    form = f"token={server.token('viewer')}".encode()
    statuses = [
        server.post("/sign-in", body=form, headers=OWN).status
        for _ in range(SIGN_IN_RATE.burst + 20)
    ]
    assert statuses[0] == 303
    assert 429 in statuses
    assert server.get("/healthz").status == 200


async def test_large_bodies_take_turns_in_another_thread() -> None:
    run, inside, threads = Apart(), threading.Lock(), set[int]()

    def work() -> None:
        assert inside.acquire(blocking=False)
        threads.add(threading.get_ident())
        trio.from_thread.run(trio.testing.wait_all_tasks_blocked)
        inside.release()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: run(work, size=LARGE))
    assert threads
    assert threading.get_ident() not in threads


async def test_large_body_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Apart()

    def work() -> None:
        monkeypatch.setattr(apart, "WAIT_S", 0.0)
        with pytest.raises(UnavailableError, match="large bodies"):
            trio.from_thread.run(lambda: run(lambda: None, size=LARGE))

    await run(work, size=LARGE)


async def test_a_small_body_needs_no_turn() -> None:
    assert await Apart()(lambda: 1, size=apart.INLINE_BYTES) == 1


def test_a_large_request_is_compared_with_its_key_apart_from_the_loop(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def digest_of(operation: str, request: Mapping[str, Any]) -> bytes:
        threads.append(threading.get_ident())
        return request_digest(operation, request)

    monkeypatch.setattr(idempotent, "request_digest", digest_of)
    server.store(lambda db: jobs.ensure_types(db, {"digest": JobPolicy()}))
    token = server.token("operator")
    for number, size in enumerate((10, LARGE)):
        body = {"type": "digest", "payload": {"note": "x" * size}}
        headers = {"Idempotency-Key": f"k{number}"}
        answer = server.post("/v1/jobs", token=token, json_body=body, headers=headers)
        assert answer.status == 201, answer.body
    small, large = threads
    assert small != large
