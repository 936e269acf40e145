"""Runs a pod inside the measuring process and stops it after the measurement."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import trio

from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.tools.toolbox import Toolbox
from cortex.bench import workload
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.registry import Registry
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import PodParts

T = TypeVar("T")


class _InstantModel:
    """Answers at once, so that only the runtime's cost of a call remains."""

    def provider_of(self, model: str) -> str:  # noqa: ARG002
        return "instant"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,  # noqa: ARG002 -- the protocol's
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,  # noqa: ARG002
    ) -> ModelResponse:
        usage = Usage(input_tokens=100, output_tokens=10)
        if on_open is not None:
            on_open()
        if on_usage is not None:
            on_usage(usage)
        return ModelResponse(
            model=request.model,
            content=({"type": "text", "text": "yes"},),
            stop_reason="end_turn",
            usage=usage,
            message_id="instant",
        )


async def _nothing(_: Port) -> None:
    """Do nothing: an empty database is enough."""


def measure(
    dsn: str,
    settings: Settings,
    *,
    fill: Callable[[Port], Awaitable[None]] = _nothing,
    work: Callable[[Port], Awaitable[T]],
) -> T:
    """Fill the database, start a pod on it, and return the result of `work` on the ready pod."""
    workload.started_count = 0
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
    parts = PodParts(
        registry=registry, client=_InstantModel(), tools=Toolbox({}), workspaces=Path()
    )
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
