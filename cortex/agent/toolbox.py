"""What the pod lends to its jobs from this package: tools by name, each call behind its breaker."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from cortex.agent.tool import Tool, ToolContext
from cortex.domain.classification import failure_of
from cortex.domain.errors import Suspended, TransientError, UsageError
from cortex.domain.failure_codes import UNKNOWN
from cortex.durable.calls import Admission
from cortex.durable.context import Context

WAITS_MAX: Final = 5
"""So often in a row a job waits for a tool's breaker; then its agent is told, or the job fails."""


@attrs.frozen
class Toolbox:
    """Calls the pod's tools in the workspace of the job that asks."""

    tools: Mapping[str, Tool]

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools as a model is told. Raises `UsageError` for one it does not have."""
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in map(self._tool, names)
        ]

    def is_required(self, name: str) -> bool:
        """Whether its failure fails the step that called it."""
        return self._tool(name).is_required

    async def call(
        self,
        ctx: Context,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        folder: Path | None,
        timeout: float | None,
    ) -> Any:
        """Return the tool's result as plain JSON; `timeout` in seconds in place of its own.

        Raises `UsageError` for a tool it does not have, `Suspended` while the breaker of a remote
        one is open or when this failure opened it, and what `Tool.call` raises.
        """
        tool = self._tool(name)
        parsed = tool.parse(arguments)
        workspace = await trio.to_thread.run_sync(_made, ctx.workspace)
        context = ToolContext(
            job_id=ctx.job_id,
            attempt=ctx.attempt,
            call_id=call_id,
            workspace=workspace,
            folder=folder or workspace,
        )
        invoke = partial(tool.invoke, context, parsed, timeout_s=timeout)
        breaker = tool.breaker_name(parsed)
        if breaker is None:
            return await invoke()
        return await _guarded(ctx, breaker, invoke, step=call_id.partition("/")[2])

    def _tool(self, name: str) -> Tool:
        try:
            return self.tools[name]
        except KeyError:
            raise UsageError(
                f"this pod has no tool {name!r}",
                hint=f"it has {', '.join(sorted(self.tools))}; load yours with --app",
            ) from None


async def _guarded(
    ctx: Context, name: str, call: Callable[[], Awaitable[Any]], *, step: str
) -> Any:
    """Make a call behind its breaker, which counts what may pass and comes from the other side.

    An error that says nothing of where it comes from is likely the tool's own mistake.
    """
    services = ctx.services
    async with _admitted(ctx, name) as admission:
        try:
            result = await call()
        except Exception as error:
            failure = attrs.evolve(failure_of(error), source=name)
            if failure.cls.is_transient and failure.code != UNKNOWN:
                try:
                    await admission.failed(failure)  # noqa: ASYNC120 -- a cancellation wins
                except Suspended as suspended:  # nothing else would record what opened it
                    if ctx.waits_count >= WAITS_MAX:
                        raise error from None
                    told = f"the job waits for {suspended.waiting_on}"
                    caller = await ctx.caller(step)  # noqa: ASYNC120 -- a cancellation wins
                    note = partial(services.facts.failed, caller, failure, resolution=told)
                    await note(goes_on=False)  # noqa: ASYNC120 -- a cancellation wins
                    raise
            raise
        await admission.succeeded()
        return result


@asynccontextmanager
async def _admitted(ctx: Context, name: str) -> AsyncIterator[Admission]:
    """Wait for leave to call, so many times in a row; then an open breaker is a failed call."""
    async with AsyncExitStack() as stack:
        try:
            admission = await stack.enter_async_context(ctx.services.breakers.admit(name))
        except Suspended as suspended:
            if ctx.waits_count < WAITS_MAX:
                raise
            hint = f"the job waited for it {ctx.waits_count} times"
            raise TransientError(suspended.reason, hint=hint) from None
        yield admission


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
