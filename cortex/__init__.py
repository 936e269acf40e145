"""Cortex: a durable runtime for AI agents on trio and Postgres.

What an application needs is here; it is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cortex.agent.tools.tool import ToolContext, tool
    from cortex.client.client import Client
    from cortex.client.handles import Handle
    from cortex.client.sync_client import SyncClient
    from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown
    from cortex.domain.errors import (
        ApprovalExpiredError,
        CapReachedError,
        ChildFailedError,
        CortexError,
        DeniedError,
        InvalidSignalError,
        JobCancelledError,
        JobFailedError,
        NotFoundError,
        RejectedError,
        TimedOutError,
        TransientError,
        UnavailableError,
    )
    from cortex.domain.file import File
    from cortex.domain.job_limits import Concurrency, Rate
    from cortex.domain.messages.message import Message
    from cortex.domain.model import ModelOptions
    from cortex.domain.queueing.submit_rules import Debounce, Singleton, Throttle
    from cortex.durable.context import Context
    from cortex.durable.message_handlers import handler
    from cortex.durable.registry import Retry, job
    from cortex.durable.resources import resource

__version__ = "0.1.0"
__all__ = [
    "Applied",
    "ApprovalExpiredError",
    "CapReachedError",
    "ChildFailedError",
    "Client",
    "Concurrency",
    "Context",
    "CortexError",
    "Debounce",
    "DeniedError",
    "File",
    "Handle",
    "InvalidSignalError",
    "Invocation",
    "JobCancelledError",
    "JobFailedError",
    "Message",
    "ModelOptions",
    "NotApplied",
    "NotFoundError",
    "Rate",
    "RejectedError",
    "Retry",
    "Singleton",
    "SyncClient",
    "Throttle",
    "TimedOutError",
    "ToolContext",
    "TransientError",
    "UnavailableError",
    "Unknown",
    "handler",
    "job",
    "resource",
    "tool",
]

_HOMES = {
    "Applied": "cortex.domain.effect",
    "ApprovalExpiredError": "cortex.domain.errors",
    "CapReachedError": "cortex.domain.errors",
    "ChildFailedError": "cortex.domain.errors",
    "DeniedError": "cortex.domain.errors",
    "Debounce": "cortex.domain.queueing.submit_rules",
    "Singleton": "cortex.domain.queueing.submit_rules",
    "Throttle": "cortex.domain.queueing.submit_rules",
    "Client": "cortex.client.client",
    "Concurrency": "cortex.domain.job_limits",
    "File": "cortex.domain.file",
    "Handle": "cortex.client.handles",
    "InvalidSignalError": "cortex.domain.errors",
    "Invocation": "cortex.domain.effect",
    "JobCancelledError": "cortex.domain.errors",
    "JobFailedError": "cortex.domain.errors",
    "Message": "cortex.domain.messages.message",
    "ModelOptions": "cortex.domain.model",
    "NotApplied": "cortex.domain.effect",
    "NotFoundError": "cortex.domain.errors",
    "Rate": "cortex.domain.job_limits",
    "TransientError": "cortex.domain.errors",
    "UnavailableError": "cortex.domain.errors",
    "Unknown": "cortex.domain.effect",
    "Context": "cortex.durable.context",
    "CortexError": "cortex.domain.errors",
    "RejectedError": "cortex.domain.errors",
    "handler": "cortex.durable.message_handlers",
    "Retry": "cortex.durable.registry",
    "SyncClient": "cortex.client.sync_client",
    "TimedOutError": "cortex.domain.errors",
    "ToolContext": "cortex.agent.tools.tool",
    "job": "cortex.durable.registry",
    "resource": "cortex.durable.resources",
    "tool": "cortex.agent.tools.tool",
}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
