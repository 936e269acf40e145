"""An assistant of tests: the client of the `mcp` package, beside the server in this process."""

import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing
from mcp.client import Client
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from cortex.domain.clock import system_chance
from cortex.domain.people import OsUser
from cortex.http.mcp.allow import Allow
from cortex.http.mcp.callers import of_login
from cortex.http.mcp.serving import Serving
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.postgres.session import run
from cortex.runtime.clients.result_waiters import ResultWaiters
from cortex.view.doctor import fail, ok
from tests.support.eventually import WITHIN_S
from tests.support.people import create_token

LEGACY = "legacy"
"""The protocol with a handshake, which assistants of 2025 speak."""


@attrs.frozen
class Said:
    """What a tool returned."""

    is_error: bool
    notice: str
    text: str

    @property
    def document(self) -> Any:
        assert not self.is_error, self.text
        return json.loads(self.text)

    @property
    def error(self) -> str:
        assert self.is_error, self.text
        assert "\n" not in self.text
        return self.text


def said(result: CallToolResult) -> Said:
    texts = [each.text for each in result.content if isinstance(each, TextContent)]
    return Said(result.is_error, texts[0], texts[-1])


class Assistant:
    """A client that is connected, in a thread of its own."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, tool: str, **arguments: Any) -> Said:
        call = partial(self.client.call_tool, tool, arguments, progress_callback=self._progressed)
        return said(trio.from_thread.run(call, trio_token=self._token))

    @contextmanager
    def beside(self, tool: str, **arguments: Any) -> Iterator[None]:
        """Call a tool that does not return as long as the block; cancelled at its end."""
        scope = trio.CancelScope()
        began = threading.Event()

        async def call() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(
                        partial(
                            self.client.call_tool,
                            tool,
                            arguments,
                            progress_callback=self._progressed,
                        )
                    )
                    await trio.testing.wait_all_tasks_blocked()
                    began.set()

        thread = threading.Thread(
            target=trio.from_thread.run, args=(call,), kwargs={"trio_token": self._token}
        )
        thread.start()
        try:
            assert began.wait(WITHIN_S)
            yield
        finally:
            trio.from_thread.run_sync(scope.cancel, trio_token=self._token)
            thread.join(WITHIN_S)

    def tools(self) -> dict[str, Any]:
        """The offered tools, by name."""
        listed = trio.from_thread.run(self.client.list_tools, trio_token=self._token)
        return {each.name: each for each in listed.tools}

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


class Person:
    """Sits at the assistant, and answers its dialogs with these words; None: declines."""

    def __init__(self, *words: str | None) -> None:
        self.words = list(words)
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        word = self.words.pop(0)
        if word is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"confirm": word})


@asynccontextmanager
async def serving(
    port: Port, *allowed: str, tenant: str | None = None
) -> AsyncGenerator[Serving, None]:
    waiters = ResultWaiters(port)
    async with trio.open_nursery() as nursery:
        await nursery.start(waiters.run)
        yield Serving(
            port=port,
            chance=system_chance(),
            result=waiters.result,
            allowed={Allow(each) for each in allowed},
            tenant=tenant,
            checks=lambda: [ok("config", "all by default"), fail("database", "gone", "start it")],
        )
        nursery.cancel_scope.cancel()


@contextmanager
def in_thread(connected: Callable[[], AbstractAsyncContextManager[Client]]) -> Iterator[Assistant]:
    """Connect a client in a thread as long as the block; what it raises comes out of the block."""
    made: list[Assistant] = []
    ready = threading.Event()
    ends: list[trio.Event] = []
    failed: list[BaseException] = []

    async def main() -> None:
        ends.append(trio.Event())
        async with connected() as client:
            made.append(Assistant(client))
            ready.set()
            await ends[0].wait()

    def run_it() -> None:
        try:
            trio.run(main)
        except BaseException as error:  # noqa: ASYNC103, BLE001 -- raised in the test
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run_it)
    thread.start()
    try:
        assert ready.wait(WITHIN_S)
        if made:
            yield made[0]
    finally:
        if made and not failed:
            trio.from_thread.run_sync(ends[0].set, trio_token=made[0]._token)
        thread.join(WITHIN_S)
    if failed:
        raise failed[0]


def assistant(
    dsn: str,
    allowed: Sequence[str] = (),
    *,
    token: str | None = None,
    tenant: str | None = None,
    person: Person | None = None,
    mode: str = "auto",
) -> AbstractContextManager[Assistant]:
    """Connect a client to a server of its own."""

    @asynccontextmanager
    async def connected() -> AsyncGenerator[Client, None]:
        login = of_login(OsUser(uid=70_001, name="olga", host="test"))
        profile = Profile(dsn=dsn, tenant=tenant)
        async with (
            open_port(profile, rng=system_chance().rng) as port,
            serving(port, *allowed, tenant=tenant) as served,
            served.for_one(token=token, login=login) as server,
            Client(server, elicitation_callback=person, mode=mode) as client,  # type: ignore[arg-type]
        ):
            yield client

    return in_thread(connected)


def token_of(dsn: str, *roles: str, name: str = "ana", tenant: str | None = None) -> str:
    """Make a token with these roles."""
    return run(Profile(dsn=dsn), partial(create_token, roles=roles, name=name, tenant=tenant))
