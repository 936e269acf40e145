"""The built-in job types, one file each."""

from cortex.durable.registry import Registry
from cortex.jobs import bulk, run_agent


def builtin_registry() -> Registry:
    """Return a registry with every built-in job type, to which an app may add its own."""
    registry = Registry()
    registry.collect(run_agent)
    registry.collect(bulk)
    return registry
