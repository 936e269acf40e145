"""Starts tracing where the environment asks for it; the library is imported only then."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
import trio

import cortex
from cortex.domain.clock import Chance
from cortex.domain.log_line import LogLine
from cortex.durable.tracing import Untraced
from cortex.postgres.bridge import Port
from cortex.runtime.tracing.environment import ExportSettings, Signal
from cortex.store.pods import Pod

if TYPE_CHECKING:
    from cortex.runtime.tracing.exporter import SpanExporter
    from cortex.runtime.tracing.log_exporter import LogExporter

DISTRIBUTION = "opentelemetry-proto"
_log = structlog.get_logger(__name__)


class NoExporter(Untraced):
    """The actor in its place where spans are not wanted, or cannot be exported."""

    name = "span exporter"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def flush(self, left_s: float) -> None: ...


class NoLogExporter:
    """The actor in its place where log lines are not wanted there, or cannot be exported."""

    name = "log exporter"

    def add(self, lines: Sequence[LogLine]) -> None: ...

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
        _warn_of_absence(error, Signal.TRACES)
        return NoExporter()
    return SpanExporter(
        port,
        settings,
        resource=_resource(pod),
        version=cortex.__version__,
        unix_ms=chance.unix_ms,
        rng=chance.rng,
    )


def log_exporter(*, pod: Pod, chance: Chance) -> "LogExporter | NoLogExporter":
    """Return the actor that exports the log lines of a pod's jobs."""
    signal = Signal.LOGS
    settings = ExportSettings.of_environment(os.environ, warn=_log.warning, signal=signal)
    if settings is None:
        return NoLogExporter()
    try:
        from cortex.runtime.tracing.log_exporter import LogExporter  # noqa: PLC0415 -- 60 ms
    except ModuleNotFoundError as error:
        _warn_of_absence(error, signal)
        return NoLogExporter()
    return LogExporter(
        settings,
        resource=_resource(pod),
        version=cortex.__version__,
        unix_ms=chance.unix_ms,
        rng=chance.rng,
    )


def _warn_of_absence(error: ModuleNotFoundError, signal: Signal) -> None:
    hint = f"pip install {DISTRIBUTION}"
    _log.warning(f"{signal} not exported", error=f"no module {error.name}", hint=hint)


def _resource(pod: Pod) -> dict[str, str]:
    return {
        "service.version": cortex.__version__,
        "service.instance.id": str(pod.id),
        "cortex.pod": pod.name,
    }
