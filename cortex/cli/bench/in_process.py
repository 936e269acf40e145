"""Runs a pod inside the measuring process, and stops it when the measurement is done."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import trio

from cortex.cli.bench import workload
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError
from cortex.domain.model import ModelRequest
from cortex.durable.context import Context
from cortex.durable.journal import Outcome
from cortex.durable.registry import Registry
from cortex.pod import PodParts, Shutdown, run_pod
from cortex.store.bridge import Port, open_port
from cortex.store.database import Profile

T = TypeVar("T")


class _None:
    """No models and no tools: these measurements are about the runtime."""

    def offer(self, names: object) -> list[dict[str, Any]]:
        raise UsageError(f"a bench pod has no tools {names!r}")

    async def call(
        self,
        ctx: Context,  # noqa: ARG002 -- the protocol's
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        folder: Path | None,
    ) -> Any:
        raise UsageError(
            f"a bench pod has no tool {name!r}", hint=f"{call_id} {folder} {arguments}"
        )

    async def respond(self, request: ModelRequest) -> Outcome:
        raise UsageError(f"a bench pod has no model {request.model!r}")


def measure(
    dsn: str,
    settings: Settings,
    *,
    fill: Callable[[Port], Awaitable[None]],
    work: Callable[[Port], Awaitable[T]],
) -> T:
    """Fill the database, start a pod on it, return what `work` on the ready pod returns."""
    return trio.run(_measure, dsn, settings, fill, work)


async def _measure(
    dsn: str,
    settings: Settings,
    fill: Callable[[Port], Awaitable[None]],
    work: Callable[[Port], Awaitable[T]],
) -> T:
    chance = system_chance()
    async with open_port(Profile(dsn=dsn), rng=chance.rng) as port:
        await fill(port)
    registry = Registry()
    registry.collect(workload)
    nothing = _None()
    parts = PodParts(registry=registry, models=nothing, tools=nothing, workspaces=Path())
    shutdown = Shutdown()
    results: list[T] = []

    async def run(port: Port) -> None:
        results.append(await work(port))
        shutdown.request()

    await run_pod(
        settings,
        dsn=dsn,
        parts=parts,
        chance=chance,
        shutdown=shutdown,
        on_ready=lambda ready: ready.nursery.start_soon(run, ready.port),
    )
    return results[0]
