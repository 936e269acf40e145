"""A real server of the API in a thread of its own, on a real database, and a plain client."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from cortex.config import networks_of
from cortex.domain.clock import system_chance
from cortex.domain.drain import DrainRequest, DrainStatus, ReadyChecks, TroubleReport
from cortex.durable.registry import Registry
from cortex.http.framework.api import Api, PodView
from cortex.http.framework.auth import Authenticator
from cortex.http.framework.dispatch import ADDRESS_RATE, TOKEN_RATE, application
from cortex.http.framework.limits import Rate
from cortex.http.framework.route import Route
from cortex.http.routes import ALL
from cortex.http.server import Server
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from tests.support.counting import CountingPort
from tests.support.eventually import WITHIN_S
from tests.support.hall import JOB_TYPES, Hall
from tests.support.people import create_token
from tests.support.records.rows import seeded_random

LOOPBACK = "127.0.0.0/8,::1"


@attrs.frozen
class Answered:
    """Response of the server."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which is JSON of one kind or the other."""
        assert "json" in self.headers["content-type"], self
        return json.loads(self.body)


class HttpServer:
    """A server that runs, what its pod says of itself, and a client."""

    calls: CountingPort
    """Counts the statements of the server."""
    hall: Hall
    """Who waits and follows."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.port = 0
        self.host = "127.0.0.1"
        self.is_sure = True
        self.is_claiming = True
        self.are_workers_ready = True
        self.leaving: DrainStatus | None = None
        self.drain_request: DrainRequest | None = None
        self.trouble: TroubleReport | None = None
        self.workspaces: Path | None = None
        self.folder_roots: Sequence[Path] = ()
        self.proxies: str | None = LOOPBACK
        self._token: Any = None
        self._draining: trio.Event | None = None
        self._stop: trio.Event | None = None
        self._actor: Server | None = None

    # --- as a client

    def token(
        self,
        *roles: str,
        name: str = "ana",
        expires_s: float | None = None,
        tenant: str | None = None,
    ) -> str:
        """Make a token with these roles."""
        made: str = self.store(
            partial(create_token, roles=roles, name=name, expires_s=expires_s, tenant=tenant)
        )
        return made

    def store(self, work: Callable[[Database], Any]) -> Any:
        """Run store methods, beside the server."""
        result: list[Any] = []

        def in_thread() -> None:
            result.append(run(Profile(dsn=self.dsn), work))

        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        return result[0]

    def get(self, path: str, **options: Any) -> Answered:
        """GET; see `ask`."""
        return self.ask("GET", path, **options)

    def post(self, path: str, **options: Any) -> Answered:
        """POST; see `ask`."""
        return self.ask("POST", path, **options)

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        json_body: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """Send one request on a connection of its own and read its answer."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if json_body is not None:
            body = json.dumps(json_body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WITHIN_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            return answered(connection.getresponse())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Open a plain connection."""
        return socket.create_connection((self.host, self.port), timeout=WITHIN_S)

    def raw(self, sent: bytes) -> bytes:
        """Send these bytes and return all that comes until the server closes."""
        with self.connect() as connection:
            connection.sendall(sent)
            return read_all(connection)

    # --- as its pod

    def drain(self) -> None:
        """Say that the pod was asked to end."""
        assert self._draining is not None
        trio.from_thread.run_sync(self._draining.set, trio_token=self._token)

    def checks(self) -> ReadyChecks:
        """Say whether the pod takes jobs."""
        assert self._draining is not None
        return ReadyChecks(
            database=self.is_sure and self.trouble is None,
            claiming=self.is_claiming,
            not_draining=not self._draining.is_set() and self.drain_request is None,
        )

    def close(self) -> None:
        """Close the server as its pod does, and wait until that is done."""
        assert self._actor is not None
        trio.from_thread.run(self._actor.close, trio_token=self._token)

    async def serve(
        self,
        *,
        routes: Sequence[Route],
        address_rate: Rate,
        token_rate: Rate,
        connections_max: int | None,
        ready: Callable[[], None],
    ) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._draining, self._stop = trio.Event(), trio.Event()
        rng = seeded_random()
        async with open_port(Profile(dsn=self.dsn, hot_path=True), rng=rng) as plain:
            self.calls = port = CountingPort(plain)
            self.hall = hall = Hall(port, rng=rng)
            pod = PodView(
                name="pod-1",
                checks=self.checks,
                are_workers_ready=lambda: self.are_workers_ready,
                trouble=lambda: self.trouble,
                draining=self._draining,
                drain=lambda: self.leaving,
                drain_request=lambda: self.drain_request,
                result=hall.waiters.result,
                follow=hall.feeds.follow,
                exposition=hall.page.exposition,
                answered=hall.metrics.http_answered,
                find_type=Registry(JOB_TYPES).find,
                workspaces=self.workspaces,
                folder_roots=self.folder_roots,
                proxies=networks_of(self.proxies),
            )
            api = Api(port=port, chance=system_chance(), pod=pod, auth=Authenticator(port))
            app = application(routes, api, address_rate=address_rate, token_rate=token_rate)
            self.turns, self.live = api.turns, api.live
            self._actor = Server(
                port,
                app,
                host=self.host,
                number=0,
                turns=api.turns,
                live=api.live,
                connections_max=connections_max,
            )
            async with trio.open_nursery() as nursery:
                for actor in hall.actors:
                    await nursery.start(actor.run)
                await nursery.start(self._actor.run)
                self.port = urlsplit(self._actor.url).port or 0
                ready()
                await self._stop.wait()
                nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """End the server's thread."""
        if self._stop is not None:
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)


@contextmanager
def http_server(
    dsn: str,
    *,
    routes: Sequence[Route] = ALL,
    address_rate: Rate = ADDRESS_RATE,
    token_rate: Rate = TOKEN_RATE,
    connections_max: int | None = None,
    workspaces: Path | None = None,
    folder_roots: Sequence[Path] = (),
    proxies: str | None = LOOPBACK,
) -> Iterator[HttpServer]:
    """Run a server as long as the block; what it raises comes out of the block."""
    server = HttpServer(dsn)
    server.workspaces = workspaces
    server.folder_roots = folder_roots
    server.proxies = proxies
    ready = threading.Event()
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            trio.run(
                partial(
                    server.serve,
                    routes=routes,
                    address_rate=address_rate,
                    token_rate=token_rate,
                    connections_max=connections_max,
                    ready=ready.set,
                )
            )
        except BaseException as error:  # noqa: BLE001, ASYNC103  (raised again below)
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=in_thread, name="http server of a test")
    thread.start()
    ready.wait(WITHIN_S)
    try:
        if not failed:
            yield server
    finally:
        if not failed:
            server.stop()
        thread.join(WITHIN_S)
        assert not thread.is_alive(), "the server does not end"
        if failed:
            raise failed[0]


def answered(response: http.client.HTTPResponse) -> Answered:
    """Read an answer to its end."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answered(response.status, headers, response.read())


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    pieces = []
    try:
        while piece := connection.recv(65_536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)
