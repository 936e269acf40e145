"""A process that serves tools: the routes that they are made of, and what those need of a pod."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import trio
from mcp.server.lowlevel import Server as McpServer
from starlette.requests import Request

from cortex.domain.clock import Chance
from cortex.domain.drain import ReadyChecks
from cortex.domain.job_feed import CodeWait, JobState
from cortex.http.framework.api import Api, PodView
from cortex.http.framework.auth import Authenticator
from cortex.http.framework.dispatch import ADDRESS_RATE, application
from cortex.http.framework.gate import Gate, Numbers
from cortex.http.framework.live_tokens import LiveTokens
from cortex.http.framework.origin import Network, address_of, client_of
from cortex.http.framework.principal import Principal
from cortex.http.mcp.allow import Allow
from cortex.http.mcp.asking import Caller, InProcess
from cortex.http.mcp.callers import Callers
from cortex.http.mcp.diagnosis import Checks, doctor_tool
from cortex.http.mcp.endpoint import endpoint
from cortex.http.mcp.service import Context, Service
from cortex.http.mcp.stdio import serve
from cortex.http.mcp.tools import TOOLS
from cortex.http.server import CALLS_MAX, Server
from cortex.postgres.bridge import Lane, Port

STDIO: Final = "stdio"
"""In place of an address: recorded with decisions."""
TOKEN_HINT: Final = "start `cortex mcp` with another token in CORTEX_TOKEN"  # noqa: S105
Result = Callable[[UUID, float], Awaitable[JobState | CodeWait | None]]


@attrs.frozen(kw_only=True)
class Serving:
    """What all clients of this process share."""

    port: Port
    chance: Chance
    result: Result
    """How a job has ended; as of a pod."""
    allowed: AbstractSet[Allow]
    tenant: str | None
    checks: Checks
    """Of `cortex doctor`."""
    proxies: Sequence[Network] = ()
    folder_roots: Sequence[Path] = ()

    async def on_stdio(self, *, token: str | None, login: Principal) -> None:
        """Serve the client at stdin and stdout, which acts with the token, else as the login."""
        async with self.for_one(token=token, login=login) as server:
            await serve(server)

    @asynccontextmanager
    async def for_one(
        self, *, token: str | None, login: Principal
    ) -> AsyncGenerator[McpServer[Any], None]:
        """Yield the server of one client, which acts with the token, else as the login."""
        caller = Caller(authorization=None if token is None else f"Bearer {token}", address=STDIO)
        callers = Callers(self.port, login=login if token is None else None, tenant=self.tenant)
        api = self._api(callers, LiveTokens(self.port))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.live.run)
            service = self._service(api, callers, lambda _: caller, token_hint=TOKEN_HINT)
            yield service.server()
            nursery.cancel_scope.cancel(reason="the client has left")

    async def on_http(self, host: str, number: int, *, ready: Callable[[str], object]) -> None:
        """Serve clients at an address until cancelled; `ready` gets its URL."""
        callers = Callers(self.port, login=None, tenant=self.tenant)
        api = self._api(callers, LiveTokens(self.port))
        service = self._service(api, callers, _caller_over_http)
        async with endpoint(service.server(), callers=callers, live=api.live) as served:
            gate = Gate(
                served,
                pod=api.pod,
                rate=ADDRESS_RATE,
                number=Numbers(f"{self.chance.rng.getrandbits(40):010x}"),
            )
            actor = Server(api.port, gate, host=host, number=number, turns=api.turns, live=api.live)
            async with trio.open_nursery() as nursery:
                await nursery.start(actor.run)
                ready(actor.url)
                await trio.sleep_forever()

    def _api(self, callers: Authenticator, live: LiveTokens) -> Api:
        pod = PodView(
            name="mcp",
            checks=lambda: ReadyChecks(database=True, claiming=False, not_draining=True),
            are_workers_ready=lambda: True,
            trouble=lambda: None,
            draining=trio.Event(),
            drain=lambda: None,
            drain_request=lambda: None,
            result=self.result,
            follow=_of_pods,
            exposition=_of_pods,
            answered=lambda **_: None,
            find_type=lambda _: None,
            proxies=self.proxies,
            folder_roots=self.folder_roots,
        )
        port = Lane(self.port, calls_max=CALLS_MAX)
        return Api(port=port, chance=self.chance, pod=pod, auth=callers, live=live)

    def _service(
        self,
        api: Api,
        callers: Callers,
        caller_of: Callable[[Context], Caller],
        *,
        token_hint: str | None = None,
    ) -> Service:
        tools = (*TOOLS, doctor_tool(self.checks))
        routes = [each.route for each in tools]
        return Service(
            ask=InProcess(application(routes, api)),
            callers=callers,
            allowed=self.allowed,
            caller_of=caller_of,
            all_tools=tools,
            token_hint=token_hint,
        )


def _caller_over_http(context: Context) -> Caller:
    request = context.request
    if not isinstance(request, Request):
        raise TypeError("a call over HTTP without its request")
    return Caller(
        authorization=request.headers.get("authorization"),
        address=address_of(request.scope),
        client=client_of(request),
    )


def _of_pods(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("no tool uses this")
