"""Cortex: a durable runtime for AI agents on trio and Postgres.

What an application needs is here; it is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cortex.agent.tools.tool import ToolContext, tool
    from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown
    from cortex.domain.errors import (
        ApprovalExpiredError,
        CortexError,
        DeniedError,
        RejectedError,
        TransientError,
    )
    from cortex.domain.messages.message import Message
    from cortex.durable.context import Context
    from cortex.durable.message_handlers import handler
    from cortex.durable.registry import Retry, job
    from cortex.durable.resources import resource

__version__ = "0.1.0"
__all__ = [
    "Applied",
    "ApprovalExpiredError",
    "Context",
    "CortexError",
    "DeniedError",
    "Invocation",
    "Message",
    "NotApplied",
    "RejectedError",
    "Retry",
    "ToolContext",
    "TransientError",
    "Unknown",
    "handler",
    "job",
    "resource",
    "tool",
]

_HOMES = {
    "Applied": "cortex.domain.effect",
    "ApprovalExpiredError": "cortex.domain.errors",
    "DeniedError": "cortex.domain.errors",
    "Invocation": "cortex.domain.effect",
    "Message": "cortex.domain.messages.message",
    "NotApplied": "cortex.domain.effect",
    "TransientError": "cortex.domain.errors",
    "Unknown": "cortex.domain.effect",
    "Context": "cortex.durable.context",
    "CortexError": "cortex.domain.errors",
    "RejectedError": "cortex.domain.errors",
    "handler": "cortex.durable.message_handlers",
    "Retry": "cortex.durable.registry",
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
