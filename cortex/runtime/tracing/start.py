"""Starts tracing where the environment asks for it; the library is imported only then."""

import os
from typing import TYPE_CHECKING

import structlog
import trio

import cortex
from cortex.domain.clock import Chance
from cortex.durable.tracing import Untraced
from cortex.postgres.bridge import Port
from cortex.runtime.tracing.environment import ExportSettings
from cortex.store.pods import Pod

if TYPE_CHECKING:
    from cortex.runtime.tracing.exporter import SpanExporter

DISTRIBUTION = "opentelemetry-proto"
_log = structlog.get_logger(__name__)


class NoExporter(Untraced):
    """The actor in its place where spans are not wanted, or cannot be exported."""

    name = "span exporter"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def flush(self, left_s: float) -> None: ...


def span_exporter(port: Port, *, pod: Pod, chance: Chance) -> "SpanExporter | NoExporter":
    """Return the actor that exports a pod's spans."""
    settings = ExportSettings.of_environment(os.environ, warn=_log.warning)
    if settings is None:
        return NoExporter()
    try:
        from cortex.runtime.tracing.exporter import SpanExporter  # noqa: PLC0415 -- 60 ms
    except ModuleNotFoundError as error:
        hint = f"pip install {DISTRIBUTION}"
        _log.warning("traces not exported", error=f"no module {error.name}", hint=hint)
        return NoExporter()
    return SpanExporter(
        port,
        settings,
        resource={
            "service.version": cortex.__version__,
            "service.instance.id": str(pod.id),
            "cortex.pod": pod.name,
        },
        version=cortex.__version__,
        unix_ms=chance.unix_ms,
        rng=chance.rng,
    )
