"""One seed from its plan to its verdict, in a specially prepared process: see `prepare`."""

import gc
import os
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Literal

import httpx2
import structlog
import trio

from chaos.sim.clock import HOST, Clock
from chaos.sim.judge import judge
from chaos.sim.machine import Machine
from chaos.sim.outcome import Outcome
from chaos.sim.outside import Receiver
from chaos.sim.plan import make_plan
from chaos.sim.server import Server
from chaos.sim.wire import Wire
from chaos.sim.world import World
from chaos.workloads import app
from chaos.workloads.messages import SECRET, SECRET_VALUE
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.proxies import Proxies
from cortex.runtime.outbox import outbox


class Simulator:
    """Runs seeds one after another in a process whose threads, logs and garbage it controls."""

    def __init__(self, template_dsn: str, *, workspaces: Path) -> None:
        self._template_dsn = template_dsn
        self._workspaces = workspaces
        self._wire = Wire()
        self._world: World | None = None
        self._prepare()

    def run(self, seed: int, *, keeps: bool = False, is_brief: bool = False) -> Outcome:
        """Simulate one seed; `keeps` its transcript."""
        clock = Clock()
        server = Server(self._template_dsn, clock=clock, wire=self._wire)
        began = time.perf_counter()
        gc.disable()  # objects that end on collection would end at a different time in each run
        server.open()
        try:
            world = self._world = World(
                make_plan(seed, is_brief=is_brief),
                server=server,
                clock=clock,
                workspaces=self._workspaces,
                keeps=keeps,
            )
            world.run()
            problems = judge(world)
        finally:
            server.close()
            self._world = None
            gc.enable()
            gc.unfreeze()
        return Outcome(
            seed=seed,
            problems=tuple(problems),
            digest=world.transcript.digest,
            line_count=world.transcript.count,
            virtual_s=clock.now,
            took_s=time.perf_counter() - began,
            lines=tuple(world.transcript.lines),
        )

    def _prepare(self) -> None:
        # The end of a thread is unpredictable, so threads are replaced.
        vars(trio.to_thread)["run_sync"] = _run_sync
        vars(app)["_ledger"] = lambda: self._client("ledger")
        vars(app)["_receiver"] = lambda: self._client("receiver")
        vars(outbox)["Poster"] = self._poster
        os.environ[SECRET] = SECRET_VALUE
        structlog.configure(processors=[self._log])

    def _poster(self, _: AllowedAddresses, **_options: Proxies) -> Receiver:
        """Return what a pod posts webhooks with, as `Poster` is called; no proxy is on the way."""
        if self._world is None:
            raise AssertionError("a pod outside all worlds")
        return self._world.receiver

    def _client(self, name: Literal["ledger", "receiver"]) -> httpx2.AsyncClient:
        if self._world is None:
            raise AssertionError("a call from outside all worlds")
        transport = self._world.ledger if name == "ledger" else self._world.receiver
        return httpx2.AsyncClient(transport=transport, base_url=f"http://{name}", trust_env=False)

    def _log(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
        host = HOST.get()
        if self._world is not None and isinstance(host, Machine):
            self._world.log(host, level, event)
        raise structlog.DropEvent


async def _run_sync(function: Any, *args: Any, **_options: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*args)
