"""An application that puts NUL and halves of surrogate pairs wherever job code may put text."""

from collections.abc import Awaitable, Callable
from typing import Any

from cortex.agent.tools.tool import tool
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError, TransientError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

NUL = "a\0b"
HALF = "a\ud800b"


class OddError(RuntimeError):
    """Error whose text cannot be encoded."""

    def __str__(self) -> str:
        return NUL + HALF


@tool
def echo(text: str) -> str:
    """Return it."""
    return text


@tool
def odd_result() -> Any:
    """Return it."""
    return {NUL: [HALF]}


@tool
def odd_error() -> Any:
    """Raise it."""
    raise OddError


async def _say(text: str) -> Any:
    return {NUL: text}


async def _fail(error: str = "") -> None:
    raise OddError(error)


async def _raise(error: BaseException) -> None:
    raise error


def _ask(ctx: Context) -> Awaitable[Any]:
    messages = [{"role": "user", "content": NUL}]
    return ctx.llm("ask", model=f"x{HALF}", messages=messages)


GROUP = ExceptionGroup(NUL, [RuntimeError(HALF), RejectedError(NUL, hint=HALF)])
SCHEMA = {"type": "object", "description": NUL}
WAYS: dict[str, Callable[[Context], Awaitable[Any]]] = {
    "result": lambda _: _say(HALF),
    "step": lambda ctx: ctx.step("say", _say, HALF),
    "step's name": lambda ctx: ctx.step(NUL, _say, ""),
    "error": lambda _: _fail(),
    "group": lambda _: _raise(GROUP),
    "rejected": lambda _: _raise(RejectedError(NUL, hint=HALF)),
    "transient": lambda _: _raise(TransientError(NUL, hint=HALF)),
    "suspended": lambda _: _raise(Suspended("x", HALF + NUL, delay_s=None)),
    "waiting on": lambda _: _raise(Suspended(f"x{NUL}{HALF}", "reason", delay_s=None)),
    "tool's input": lambda ctx: ctx.tool("call", "echo", {"text": NUL}),
    "tool's input key": lambda ctx: ctx.tool("call", "echo", {HALF: "x"}),
    "tool's name": lambda ctx: ctx.tool("call", NUL, {}),
    "tool's result": lambda ctx: ctx.tool("call", "odd_result", {}),
    "tool's error": lambda ctx: ctx.tool("call", "odd_error", {}),
    "question's name": lambda ctx: ctx.approve(HALF),
    "question's detail": lambda ctx: ctx.approve("q", detail={"a": NUL}),
    "question's key": lambda ctx: ctx.approve("q", detail={HALF: 1}),
    "question's effect": lambda ctx: ctx.approve("q", effect=NUL),
    "question's reason": lambda ctx: ctx.approve("q", reason=HALF),
    "question's schema": lambda ctx: ctx.approve("q", schema=SCHEMA),
    "effect's name": lambda ctx: ctx.effect(NUL, _say, ""),
    "effect's input": lambda ctx: ctx.effect("e", _say, HALF),
    "effect's result": lambda ctx: ctx.effect("e", _say, ""),
    "effect's error": lambda ctx: ctx.effect("e", _fail),
    "model": _ask,
}


@job("unstorable", retry=Retry(max=0, worker_attempts=1))
async def unstorable(ctx: Context, where: str) -> Any:
    """Put it there."""
    return await WAYS[where](ctx)
