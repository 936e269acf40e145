"""Access ends with its token, also for whoever waits or follows; guessing locks out the guesser."""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from cortex.domain.token import digest_of_token, token_text
from cortex.http.framework.auth import MISSES_MAX
from tests.support.events import follow
from tests.support.eventually import eventually
from tests.support.servers.http_server import Answered, HttpServer, http_server
from tests.support.servers.postgres import sql

BOUND_S: Final = 1.0
SLACK_S: Final = 2.0
"""A loaded machine; a keep-alive would notice after 15 s, and a long wait ends after 30."""

ENDS: Final = {
    "revoked": "UPDATE cortex.api_token SET revoked_at = cortex.now(), revoked_by = 'li' "
    "WHERE digest = $1",
    "expired": "UPDATE cortex.api_token SET expires_at = cortex.now() WHERE digest = $1",
    "of one disabled": "UPDATE cortex.person SET disabled_at = cortex.now(), disabled_by = 'li' "
    "WHERE id = (SELECT person_id FROM cortex.api_token WHERE digest = $1)",
}
"""What another pod, or a command, writes."""


@pytest.fixture
def job(shared_database: str) -> str:
    (row,) = sql(shared_database, "SELECT cortex.submit_job('digest') AS id")
    return str(row["id"])


def ended(server: HttpServer, token: str, how: str) -> float:
    """End a token by the database alone; return the time."""
    sql(server.dsn, ENDS[how], digest_of_token(token))
    return time.monotonic()


@pytest.mark.parametrize("how", ENDS)
def test_a_stream_ends_with_its_token(server: HttpServer, job: str, how: str) -> None:
    token = server.token("viewer", name=f"follower {how}")
    path = f"/v1/jobs/{job}/events"
    with follow((server.host, server.port), path, token=token) as events:
        assert next(iter(events)).name == "state"
        at = ended(server, token, how)
        with contextlib.suppress(http.client.HTTPException):  # it is cut off
            assert list(events) == []
        assert time.monotonic() - at < BOUND_S + SLACK_S
    eventually(lambda: len(server.hall.feeds) == 0, what="nobody follows")


@pytest.mark.parametrize("how", ENDS)
def test_a_wait_ends_with_its_token(server: HttpServer, job: str, how: str) -> None:
    token, other = server.token("viewer", name=f"waiter {how}"), server.token("viewer", name="li")
    answers: dict[str, Answered] = {}

    def wait(token: str, wait_ms: int) -> None:
        answers[token] = server.get(f"/v1/jobs/{job}/result?wait_ms={wait_ms}", token=token)

    waits = [threading.Thread(target=wait, args=each) for each in ((token, 30_000), (other, 2_000))]
    for each in waits:
        each.start()
    eventually(lambda: len(server.hall.waiters) == 2, what="both wait")
    at = ended(server, token, how)
    waits[0].join(10)
    assert time.monotonic() - at < BOUND_S + SLACK_S
    assert answers[token].status == 401
    waits[1].join(10)
    assert answers[other].status == 202


@pytest.mark.parametrize("how", ENDS)
def test_a_session_ends_with_its_token(server: HttpServer, how: str) -> None:
    token = server.token("approver", name=f"reader {how}")
    cookie = server.post(
        "/sign-in", body=f"token={token}".encode(), headers={"Sec-Fetch-Site": "same-origin"}
    ).headers["set-cookie"]
    headers = {"Cookie": cookie.partition(";")[0]}
    assert server.get("/approvals", headers=headers).status == 200
    ended(server, token, how)
    assert server.get("/approvals", headers=headers).status == 303


def test_tokens_are_looked_at_together_and_only_while_someone_reads(
    server: HttpServer, job: str
) -> None:
    tokens = [server.token("viewer") for _ in range(3)]
    path = f"/v1/jobs/{job}/events"
    with contextlib.ExitStack() as stack:
        for token in tokens * 5:
            events = stack.enter_context(follow((server.host, server.port), path, token=token))
            assert next(iter(events)).name == "state"
        before = server.calls.counts["valid"]
        eventually(lambda: server.calls.counts["valid"] >= before + 2, what="two looks")
        assert server.calls.counts["valid"] <= before + 3
    eventually(lambda: len(server.live) == 0, what="nobody reads")


# --- guessing


@pytest.fixture
def own_server(shared_database: str) -> Iterator[HttpServer]:
    """A server that has locked out nobody yet."""
    with http_server(shared_database) as running:
        yield running


def guess(number: int) -> str:
    return token_text(number.to_bytes(32, "big"))


def asked(server: HttpServer, token: str, address: str) -> int:
    """Ask through a proxy, from an address; return the status."""
    headers = {"X-Forwarded-For": address}
    return server.get("/v1/types", token=token, headers=headers).status


GUESSER: Final = "198.51.100.1"
NEIGHBOUR: Final = "198.51.100.2"

ATTEMPTS: Final[dict[str, tuple[Callable[[int], tuple[str, str]], dict[str, int]]]] = {
    "many tokens from one address": (
        lambda n: (guess(n), GUESSER),
        {"new at guesser": 429, "new at neighbour": 200, "seen at guesser": 200, "guess": 429},
    ),
    "one token from one address": (
        lambda _: (guess(0), GUESSER),
        {"new at guesser": 200, "new at neighbour": 200, "seen at guesser": 200, "guess": 429},
    ),
    "one token from many addresses": (
        lambda n: (guess(0), f"203.0.113.{n}"),
        {"new at guesser": 200, "new at neighbour": 200, "seen at guesser": 200, "guess": 429},
    ),
    "many tokens from one network of IPv6": (
        lambda n: (guess(n), f"2001:db8::{n:x}"),
        {"new at guesser": 200, "new at 2001:db8::ffff": 429, "new at 2001:db8:1::1": 200},
    ),
    "text that is no token": (
        lambda n: (f"cortex_{n}", GUESSER),
        {"new at guesser": 429, "new at neighbour": 200, "seen at guesser": 200},
    ),
}
"""Attempts, and how others are answered afterwards: whom they lock out."""


@pytest.mark.parametrize("name", ATTEMPTS)
def test_guessing_locks_out_the_guesser_alone(own_server: HttpServer, name: str) -> None:
    attempt, expected = ATTEMPTS[name]
    seen = own_server.token("viewer", name="seen")
    assert asked(own_server, seen, GUESSER) == 200
    for n in range(MISSES_MAX):
        assert asked(own_server, *attempt(n)) == 401
    for who, status in expected.items():
        word, _, place = who.partition(" at ")
        address = {"guesser": GUESSER, "neighbour": NEIGHBOUR, "": NEIGHBOUR}.get(place, place)
        tokens: dict[str, Any] = {
            "new": lambda: own_server.token("viewer", name="new"),
            "seen": lambda: seen,
            "guess": lambda: attempt(0)[0],
        }
        if word == "guess":
            address = attempt(0)[1]
        assert asked(own_server, tokens[word](), address) == status, who


def test_a_revoked_token_locks_out_itself_alone(own_server: HttpServer) -> None:
    old = own_server.token("viewer", name="old")
    ended(own_server, old, "revoked")
    statuses = [asked(own_server, old, GUESSER) for _ in range(MISSES_MAX + 1)]
    assert statuses == [401] * MISSES_MAX + [429]
    assert asked(own_server, own_server.token("viewer"), GUESSER) == 200
