"""`run_flow`: runs a flow that people wrote in YAML."""

from typing import Any

from cortex.domain.errors import InvalidValueError
from cortex.domain.job import RUN_FLOW
from cortex.durable.context import Context
from cortex.durable.registry import job
from cortex.flows.run import FlowResult, FlowRun
from cortex.flows.spec import FlowSpec


@job(RUN_FLOW)
async def run_flow(
    ctx: Context, flow: str, inputs: dict[str, Any] | None = None, version: int | None = None
) -> FlowResult:
    """Run a flow to its end. The database fills in its newest `version` when it is submitted."""
    if version is None:
        raise InvalidValueError("payload of 'run_flow' lacks version")
    spec = FlowSpec.from_json(await ctx.services.specs.flow(flow, version))
    return await FlowRun(ctx, spec, version=version, inputs=inputs or {}).run()
