"""An application that says its secrets wherever it can, by mistake or by malice."""

import base64
import json
import logging
import os
from typing import Any
from urllib.parse import quote

import structlog
import trio

from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.errors import RejectedError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

log = structlog.get_logger(__name__)


def written(value: str) -> dict[str, Any]:
    """A value in each of the ways in which people write one."""
    return {
        "plain": value,
        value: "as a key",
        "json": json.dumps({"inner": value}),
        "percent": quote(value, safe=""),
        "basic": base64.b64encode(f"user:{value}".encode()).decode(),
        "base64": base64.b64encode(value.encode()).decode(),
        "repr": repr(value),
    }


@tool(timeout=2)
async def leak(context: ToolContext, how: str, name: str = "CANARY") -> Any:
    """Say a secret in one of the ways in which tools say things."""
    value = context.secret(name)
    match how:
        case "result":
            return written(value)
        case "large result":
            return {"rows": [written(value) for _ in range(4_000)]}
        case "error":
            raise RuntimeError(f"cannot log in with {written(value)}")
        case "rejected":
            raise RejectedError(f"{value} is no password", hint=f"not {value}")
        case "cut":
            raise RuntimeError("x" * 1_970 + f" cannot log in with {value}")
        case "unfit":
            return {"value": value, "object": object()}
        case "log":
            log.warning(value, value=value, written=written(value), context=context)
            logging.getLogger("app").warning("the secret is %s", value)
            try:
                await _fail(value)
            except RuntimeError:
                log.exception("failed with %s", value)
        case "hang":
            (context.workspace / f"left {quote(value, safe='')}.txt").write_text(value)
            await trio.sleep_forever()
        case _:
            pass
    return "said nothing"


@job("leak_job", retry=Retry(max=0, worker_attempts=1))
async def leak_job(ctx: Context, how: str) -> Any:
    """Say the secret in one of the ways in which job code says things."""
    await ctx.tool("know", "leak", {"how": "nothing"})
    value = os.environ["CANARY_VALUE"]
    said: Any = None
    match how:
        case "result":
            said = written(value)
        case "error":
            raise RuntimeError(f"cannot log in with {value}")
        case "group":
            raise ExceptionGroup(value, [RuntimeError(value), RejectedError(value, hint=value)])
        case "step":
            said = await ctx.step("say", _say, value)
        case "failed step":
            said = await ctx.step("fail", _fail, value)
        case "step's name":
            said = await ctx.step(f"fetch {value}", _say, "nothing")
        case "answer":
            said = (await _ask(ctx, {"text": f"you said {value}"})).text
        case "half an answer":
            stall = {"text": f"you said {value}", "fault": "stall", "fault_after": 4}
            said = await _ask(ctx, stall, model="halting", timeout=1)
        case _:
            raise RejectedError(f"there is no way {how!r}")
    return said


async def _ask(
    ctx: Context, turn: dict[str, Any], *, model: str = "scripted", timeout: float | None = None
) -> Any:
    prompt = f"leaky {json.dumps({'turns': [turn]})}"
    messages = [{"role": "user", "content": prompt}]
    return await ctx.llm("ask", model=model, messages=messages, timeout=timeout)


async def _say(text: str) -> str:
    return f"it is {text}"


async def _fail(text: str) -> None:
    raise RuntimeError(f"cannot log in with {text}")
