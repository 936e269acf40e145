"""The built-in job types, one file each."""

from cortex.durable.registry import Registry
from cortex.jobs import (
    approval_notify,
    bulk,
    execute_tool,
    http_request,
    llm_generate,
    run_agent,
    run_flow,
    send_notification,
    upkeep,
    webhook_dispatch,
)


def builtin_registry() -> Registry:
    """Return a registry with every built-in job type, to which an app may add its own."""
    registry = Registry()
    for module in (
        *(run_agent, run_flow, bulk, upkeep),
        *(http_request, webhook_dispatch, llm_generate, execute_tool),
        *(send_notification, approval_notify),
    ):
        registry.collect(module)
    return registry
