"""What the pod lends to its jobs from this package: tools by name, and models with their prices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from cortex.agent.model import ModelClient
from cortex.agent.tool import Tool, ToolContext
from cortex.domain.errors import UsageError
from cortex.domain.model import ModelRequest
from cortex.domain.prices import cost
from cortex.durable.context import Context
from cortex.durable.journal import Outcome


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

    async def call(
        self,
        ctx: Context,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        folder: Path | None,
    ) -> Any:
        """Return the tool's result as plain JSON; `UsageError` for a tool it does not have."""
        tool = self._tool(name)
        workspace = await trio.to_thread.run_sync(_made, ctx.workspace)
        context = ToolContext(
            job_id=ctx.job_id,
            attempt=ctx.attempt,
            call_id=call_id,
            workspace=workspace,
            folder=folder or workspace,
        )
        return await tool.call(context, arguments)

    def _tool(self, name: str) -> Tool:
        try:
            return self.tools[name]
        except KeyError:
            raise UsageError(
                f"this pod has no tool {name!r}",
                hint=f"it has {', '.join(sorted(self.tools))}; load yours with --app",
            ) from None


@attrs.frozen
class PricedModels:
    """Answers model steps with what they used and cost."""

    client: ModelClient

    async def respond(self, request: ModelRequest) -> Outcome:
        """Return the response as plain JSON, with usage, and cost if the price is known."""
        response = await self.client.respond(request)
        return Outcome(
            value=response.to_json(),
            usage=response.usage,
            cost_usd=cost(request.model, response.usage),
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
