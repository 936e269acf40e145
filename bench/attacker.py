"""Clients that abuse the HTTP API of a pod, as a process of their own: see `abuse`.

    python -m bench.attacker ATTACK SECONDS

reads `{"host": …, "port": …, "tokens": […], "job": …}` from stdin, prints a JSON line when it
begins, and ends by itself.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import attrs
import trio
import trio.lowlevel

MEGABYTE: Final = 1_000_000
ANSWER_BOUND_S: Final = 30.0
READ_BYTES: Final = 65_536
OPENED_AT_ONCE: Final = 50


@attrs.define
class Target:
    """The attacked pod, and the attacker's credentials."""

    host: str
    port: int
    tokens: list[str]
    job: str
    """A job that runs throughout the measurement."""

    async def send(self, *pieces: bytes, pause_s: float = 0.0, reads_on: bool = False) -> None:
        """Send pieces on a new connection; read one response, or everything that arrives."""
        try:
            stream = await trio.open_tcp_stream(self.host, self.port)
            async with stream:
                for piece in pieces:
                    await stream.send_all(piece)
                    if pause_s:
                        await trio.sleep(pause_s)
                with trio.move_on_after(float("inf") if reads_on else ANSWER_BOUND_S):
                    while await stream.receive_some(READ_BYTES):
                        if not reads_on:
                            return
        except OSError:
            await trio.lowlevel.checkpoint()  # refused or cut off: a valid outcome, too

    def head(self, line: str, *more: str, size: int | None = None, token: int = 0) -> bytes:
        """Return the head of a request."""
        length = [] if size is None else [f"Content-Length: {size}"]
        who = f"Authorization: Bearer {self.tokens[token]}"
        lines = [f"{line} HTTP/1.1", f"Host: {self.host}:{self.port}", who, *length, *more]
        return "\r\n".join([*lines, "", ""]).encode()


async def sign_ins(target: Target) -> None:
    """Send ten anonymous sign-in forms of a megabyte each per second."""
    form = b"token=" + b"%e4%bd%a0" * (MEGABYTE // 9)
    head = target.head("POST /sign-in", "Sec-Fetch-Site: same-origin", size=len(form))
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(target.send, head, form)
            await trio.sleep(0.1)


async def large_json(target: Target) -> None:
    """Submit a megabyte of small values under a key, from eight operators, repeatedly."""
    values = b",".join([b'{"a":[1,null,"\\u00e9",1.5]}'] * (MEGABYTE // 28))
    body = b'{"type":"bench_noop","payload":{"values":[' + values + b"]}}"
    headers = "Content-Type: application/json", "Idempotency-Key: bench"
    head = target.head("POST /v1/jobs", *headers, size=len(body))
    await _again_and_again(8, lambda: target.send(head, body))


async def slow_requests(target: Target) -> None:
    """Send three hundred heads and bodies byte by byte."""
    body = b'{"type":"bench_noop"}'
    head = target.head("POST /v1/jobs", "Content-Type: application/json", size=MEGABYTE)
    whole = head + body * 100
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    await _again_and_again(300, lambda: target.send(*pieces, pause_s=0.1))


async def streams(target: Target) -> None:
    """Read one job's events on a thousand connections."""
    line = f"GET /v1/jobs/{target.job}/events"
    async with trio.open_nursery() as nursery:
        for number in range(1000):
            head = target.head(line, token=number % len(target.tokens))
            nursery.start_soon(partial(target.send, head, reads_on=True))
            if number % OPENED_AT_ONCE == OPENED_AT_ONCE - 1:
                await trio.sleep(0.1)


async def churn(target: Target) -> None:
    """Open two hundred connections per second that send one request or none."""
    head = target.head("GET /v1/jobs?limit=1", "Connection: close")
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(target.send, head)
            nursery.start_soon(target.send)
            await trio.sleep(0.01)


async def nothing(_: Target) -> None:
    """Send nothing: the baseline for the attacks."""
    await trio.sleep_forever()


ATTACKS: Final[Mapping[str, Callable[[Target], Awaitable[None]]]] = {
    "idle": nothing,
    "sign-in flood": sign_ins,
    "large JSON": large_json,
    "slow heads and bodies": slow_requests,
    "1,000 streams": streams,
    "connection churn": churn,
}


async def _again_and_again(count: int, once: Callable[[], Awaitable[None]]) -> None:
    async def client() -> None:
        while True:
            await once()
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(client)


async def _attack(name: str, seconds: float) -> None:
    target = Target(**json.loads(sys.stdin.readline()))
    print(json.dumps({"attack": name}), flush=True)
    with trio.move_on_after(seconds):
        await ATTACKS[name](target)


if __name__ == "__main__":
    trio.run(_attack, sys.argv[1], float(sys.argv[2]))
