"""`webhook_dispatch`: one signed message to a receiver, by the Standard Webhooks scheme."""

from functools import partial
from typing import Any, Final

import attrs
import orjson
import trio

from cortex.domain.effect import Invocation
from cortex.domain.errors import InvalidValueError
from cortex.domain.tracing.traceparent import with_traceparent
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.context import Context
from cortex.durable.guarding import guard_of
from cortex.durable.http_calls import BODY_READ_MAX, HTTP_OK, HttpResult, result_of
from cortex.durable.registry import job
from cortex.durable.structuring import structure
from cortex.http_client.client import (
    HttpClient,
    HttpLimits,
    Request,
    breaker_of,
    origin_of,
    parse_url,
)
from cortex.http_client.secret_values import PermittedSecrets, SecretPlace
from cortex.http_client.webhooks import signed_headers

NAME: Final = "webhook_dispatch"
SECRETS_MAX: Final = 4
ID_CHARS_MAX: Final = 200


@attrs.frozen(kw_only=True)
class Webhook:
    """One message; the receiver recognises a repetition by its id."""

    url: str
    payload: Any
    secrets: tuple[str, ...]
    """`env:NAME` or `file:/PATH`, permitted by the operator for the host; several while a secret
    is being replaced."""
    message_id: str | None = None

    def __attrs_post_init__(self) -> None:
        parse_url(self.url)
        if not 1 <= len(self.secrets) <= SECRETS_MAX:
            raise InvalidValueError(f"{NAME}: {len(self.secrets)} secrets, outside 1 to 4")
        for each in self.secrets:
            SecretPlace.parse(each)
        name = self.message_id
        if name is not None and not (
            0 < len(name) <= ID_CHARS_MAX and name.isascii() and name.isprintable()
        ):
            raise InvalidValueError(f"{NAME}: message_id has other than 1 to 200 ASCII characters")

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        """Plan the message: a `Planner`."""
        given = await attempt.limits()
        limits = HttpLimits(call_s=given.call_s, connect_s=given.connect_s, body_max=BODY_READ_MAX)

        async def run(invocation: Invocation | None) -> Any:
            assert invocation is not None  # noqa: S101 -- every call of it is an effect
            send = partial(self._send, attempt, limits, call.key, invocation)
            return await attempt.services.meter.timed(call.tool, send)

        return ToolPlan(
            arguments=call.arguments,
            effect=EffectTerms(is_idempotent=True, reconcile=None),
            gate=None,
            run=run,
            guard=guard_of(attempt, breaker_of(self.url), step=call.key),
            limit_s=given.call_s,
        )

    async def _send(
        self, attempt: Attempt, limits: HttpLimits, key: str, invocation: Invocation
    ) -> dict[str, Any]:
        body = orjson.dumps(self.payload)
        at = int((await attempt.services.clock.now()).timestamp())
        permitted = PermittedSecrets.of_environment()
        origin = origin_of(parse_url(self.url))
        secrets = [
            await trio.to_thread.run_sync(permitted.value, each, origin) for each in self.secrets
        ]
        message_id = self.message_id or f"msg_{invocation.id}"
        headers = signed_headers(message_id, body, timestamp=at, secrets=secrets)
        headers = with_traceparent(headers, attempt.traceparent(key))
        headers["Content-Type"] = "application/json"
        request = Request.made("POST", self.url, headers=headers, body=body)
        async with HttpClient.of_environment(limits) as client:
            response = await client.settle(request, follows=False)
        return result_of(response, HTTP_OK, method="POST", is_repeatable=True)


def webhook(
    url: str, payload: Any, secret: str | list[str], message_id: str | None = None
) -> Webhook:
    """Return the message that the arguments describe. Raises as `Webhook` does."""
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    return Webhook(url=url, payload=payload, secrets=secrets, message_id=message_id)


@job(NAME, check=webhook)
async def webhook_dispatch(
    ctx: Context,
    url: str,
    payload: Any,
    secret: str | list[str],
    message_id: str | None = None,
) -> HttpResult:
    """Send the payload, signed; the message keeps its id however often it is sent.

    A redirect is not followed: it is a failure, with the server that it points to.
    """
    message = webhook(url, payload, secret, message_id)
    arguments = attrs.asdict(message, filter=lambda _, value: value is not None)
    answer = await ctx.planned("POST", NAME, arguments, message.plan)
    return structure(answer, HttpResult)
