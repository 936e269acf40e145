"""The tool `http_request`: the web for agents, without what only this machine's network reaches."""

from typing import Final, Literal

import attrs

from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.tracing.traceparent import with_traceparent
from cortex.http_client.client import (
    BODY_MAX_BYTES,
    IDEMPOTENT_METHODS,
    SAFE_METHODS,
    HttpClient,
    HttpLimits,
    Request,
    Response,
    breaker_of,
    text_of,
)

CONNECT_S: Final = 10.0

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@attrs.frozen
class Reply:
    """The final answer of any status; `url` is the last one after redirects."""

    status: int
    url: str
    headers: dict[str, str]
    body: str


@tool(
    breaker=lambda arguments: breaker_of(arguments.url),
    effect=lambda arguments: arguments.method not in SAFE_METHODS,
    idempotent=lambda arguments: arguments.method in IDEMPOTENT_METHODS,
    says="sends data to another server",
)
async def http_request(
    context: ToolContext,
    url: str,
    method: Method = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
) -> Reply:
    """Send an HTTP request and return the status, the headers and the body.

    An error status such as 404 is returned like any other. Up to 5 redirects are followed. A body
    over 1 MiB is cut and says so; a binary one is left out. Only public addresses are reachable.
    In a header {secret:NAME} stands for a secret of that name, if you were given one; it is put
    in on the way out, and only for the hosts that it is meant for.

    Args:
        url: The address, starting with http:// or https://.
        method: GET unless something is to be sent or changed.
        headers: Headers to send, such as {"Accept": "application/json"}.
        body: The text to send; say what it is in a Content-Type header.
    """
    request = Request.made(
        method,
        url,
        headers=with_traceparent(headers, context.traceparent),
        body=None if body is None else body.encode(),
        secrets=context.secrets,
    )
    limits = HttpLimits(connect_s=CONNECT_S, body_max=BODY_MAX_BYTES)
    async with HttpClient.of_environment(limits) as client:
        if method in SAFE_METHODS:
            return _reply(await client.follow(request))
        return _reply(await client.change(request, context.invocation))


def _reply(response: Response) -> Reply:
    return Reply(
        status=response.status,
        url=response.url,
        headers=response.headers,
        body=_body(response),
    )


def _body(response: Response) -> str:
    text = text_of(response)
    if text is None:
        kind = response.headers.get("content-type", "unknown type")
        return f"[binary body left out: {kind}, {len(response.body)} bytes read]"
    if response.is_cut:
        text += f"\n[… truncated after {BODY_MAX_BYTES} bytes]"
    return text
