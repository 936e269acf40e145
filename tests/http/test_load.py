"""Many who ask at once: the pod's own work does not wait for them."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import trio
from trio.testing import wait_all_tasks_blocked

from cortex.domain.clock import system_chance
from cortex.domain.drain import ReadyChecks
from cortex.domain.job_feed import JobState
from cortex.domain.token import token_text
from cortex.http.framework.api import PodView
from cortex.http.server import CALLS_MAX, api_server
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from tests.support.eventually import eventually_async
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import seeded_random

CLIENTS = 8


class HeldPort(FaultyPort):
    """A port on which calls begin, and wait to be let go."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.begun = 0
        self.go = trio.Event()

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.begun += 1
        await self.go.wait()
        return await super().__call__(method, *args, **kwargs)


async def test_the_api_leaves_connections_of_the_database_to_the_jobs(database: str) -> None:
    answers: list[bytes] = []

    async def ask(number: int, port: int) -> None:
        token = token_text(number.to_bytes(32, "big"))
        head = f"GET /v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(head.encode())
            answers.append(await stream.receive_some(12))

    async with open_port(Profile(dsn=database), rng=seeded_random()) as plain:
        held = HeldPort(plain)
        server = api_server(held, chance=system_chance(), pod=_pod(), host="127.0.0.1", number=0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            for number in range(CLIENTS):
                nursery.start_soon(ask, number, urlsplit(server.url).port or 0)
            await eventually_async(lambda: held.begun >= CALLS_MAX, what="they ask")
            await wait_all_tasks_blocked(0.1)
            assert held.begun == CALLS_MAX
            held.go.set()
            await eventually_async(lambda: len(answers) == CLIENTS, what="all are answered")
            nursery.cancel_scope.cancel()
    assert set(answers) == {b"HTTP/1.1 401"}


def _pod() -> PodView:
    async def result(*_: object) -> JobState | None:
        raise AssertionError

    async def exposition() -> tuple[bytes, str]:
        raise AssertionError

    def follow(*_: object, **__: object) -> Any:
        raise AssertionError

    return PodView(
        name="pod-1",
        checks=lambda: ReadyChecks(database=True, claiming=True, not_draining=True),
        are_workers_ready=lambda: True,
        trouble=lambda: None,
        draining=trio.Event(),
        drain_request=lambda: None,
        drain=lambda: None,
        result=result,
        follow=follow,
        exposition=exposition,
        answered=lambda **_: None,
        find_type=lambda _: None,
    )
