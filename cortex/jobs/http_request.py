"""`http_request`: one HTTP request, as a job of its own."""

from typing import Any

from cortex.durable.context import Context
from cortex.durable.http_calls import HttpCall, HttpResult, Method
from cortex.durable.registry import job
from cortex.durable.structuring import structure

NAME = "http_request"


@job(NAME, check=HttpCall)
async def http_request(
    ctx: Context,
    url: str,
    *,
    method: Method = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
    json: Any = None,
    expect: list[int] | None = None,
    idempotent: bool = False,
    timeout_s: float | None = None,
) -> HttpResult:
    """Send the request and return the answer; see `HttpCall` for the arguments.

    An answer that is not expected fails the job or is tried again, by its status. Only public
    addresses are reachable, and those that the operator allows.
    """
    call = HttpCall(
        url=url,
        method=method,
        headers=headers,
        body=body,
        json=json,
        expect=expect,
        idempotent=idempotent,
        timeout_s=timeout_s,
    )
    answer = await ctx.planned(method, NAME, call.to_json(), call.plan)
    return structure(answer, HttpResult)
