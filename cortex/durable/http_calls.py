"""HTTP calls of jobs: planned like tools, each behind the breaker of its host.

A method that changes nothing is just called again after a crash. Any other request is an effect
under an idempotency key: its intent is recorded first, and if a pod dies in between, the request
is sent again only if it is idempotent; otherwise a person decides.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal

import attrs
import orjson

from cortex.domain.classification import class_of_status
from cortex.domain.effect import Invocation
from cortex.domain.errors import CortexError, InvalidOutputError, InvalidValueError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.timeouts import check_timeout
from cortex.domain.tracing.traceparent import with_traceparent
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.guarding import guard_of
from cortex.http_client.client import (
    IDEMPOTENT_METHODS,
    SAFE_METHODS,
    SERVER_ERROR,
    UNSETTLED_STATUSES,
    HttpClient,
    HttpLimits,
    Request,
    Response,
    breaker_of,
    failure_of_response,
    text_of,
)
from cortex.http_client.secret_values import PermittedSecrets

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

BODY_READ_MAX: Final = 524_288
BODY_JSON_MAX: Final = 786_432
"""Of a body in the record: beside the headers it must fit into a step."""
HEADERS_MAX: Final = 64
HTTP_OK: Final = range(200, 300)
STATUSES: Final = range(200, 600)
CONFLICT: Final = 409


class HttpStatusError(CortexError):
    """A server answered with a status that the job does not expect; `failure` classifies it."""

    code = "http_status"

    def __init__(self, message: str, *, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


@attrs.frozen(kw_only=True)
class HttpResult:
    """The answer to a job's request."""

    status: int
    url: str
    """The last one after redirects."""
    headers: dict[str, str]
    body: str | None
    """As text; None for a binary or compressed body, and for one that is in `json`."""
    json: Any
    """The body of a complete JSON answer; None for others."""
    size_bytes: int
    """Of the whole body, as far as the server announced it; else as far as it was read."""
    is_truncated: bool
    """Only the beginning of the body is here."""


def _headers(given: Mapping[str, str] | None) -> Mapping[str, str]:
    return given or {}


def _statuses(given: Iterable[int] | None) -> tuple[int, ...]:
    return tuple(given or ())


@attrs.frozen(kw_only=True)
class HttpCall:
    """One request of a job. Raises `InvalidValueError` or `UsageError` for one that is invalid."""

    url: str
    method: Method = "GET"
    headers: Mapping[str, str] = attrs.field(default=None, converter=_headers)
    """A value may be `env:NAME` or `file:/PATH`, also behind a word such as Bearer: a secret that
    the operator permits for the host, filled in when the request is sent."""
    body: str | None = None
    json: Any = None
    expect: tuple[int, ...] = attrs.field(default=None, converter=_statuses)
    """The statuses that are a result; by default any 2xx."""
    idempotent: bool = False
    """The server applies it once for each Idempotency-Key, however often it is sent."""
    timeout_s: float | None = None

    def __attrs_post_init__(self) -> None:
        Request.made(self.method, self.url, headers=self.headers)
        if self.body is not None and self.json is not None:
            raise InvalidValueError("http_request: body and json are given; a request has one body")
        if len(self.headers) > HEADERS_MAX:
            raise InvalidValueError(
                f"http_request: {len(self.headers)} headers, at most {HEADERS_MAX}"
            )
        for name, value in self.headers.items():
            if not (name.isascii() and name.isprintable() and _is_one_line(value)):
                raise InvalidValueError(
                    f"http_request: header {name!r:.100} has a line break or another character "
                    "that no header may have"
                )
        for status in self.expect:
            if status not in STATUSES or (not self.is_safe and _is_open(status)):
                raise InvalidValueError(
                    f"http_request: expect has {status}, which is no final answer to {self.method}"
                )
        if self.timeout_s is not None:
            check_timeout("http_call", self.timeout_s, source="http_request: timeout_s")

    @property
    def is_safe(self) -> bool:
        return self.method in SAFE_METHODS

    @property
    def content(self) -> bytes | None:
        if self.json is not None:
            return orjson.dumps(self.json)
        return None if self.body is None else self.body.encode()

    def to_json(self) -> dict[str, Any]:
        """Return the request as it is recorded: the method, and what differs from the defaults."""
        given = attrs.asdict(self, filter=lambda field, value: value != field.default)
        for name in ("headers", "expect"):
            if not given[name]:
                del given[name]
        return {"method": self.method, **given}

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        """Plan the request: a `Planner`."""
        limits = await attempt.limits()
        call_s = self.timeout_s or limits.call_s
        terms = None
        if not self.is_safe:
            is_idempotent = self.idempotent or self.method in IDEMPOTENT_METHODS
            terms = EffectTerms(is_idempotent=is_idempotent, reconcile=None)
        connect_s = min(limits.connect_s, call_s)
        http = HttpLimits(call_s=call_s, connect_s=connect_s, body_max=BODY_READ_MAX)
        send = partial(self._send, http, attempt.traceparent(call.key))
        meter = attempt.services.meter

        async def run(invocation: Invocation | None) -> Any:
            return await meter.timed(call.tool, partial(send, invocation))

        return ToolPlan(
            arguments=call.arguments,
            effect=terms,
            gate=None,
            run=run,
            guard=guard_of(attempt, breaker_of(self.url), step=call.key),
            limit_s=call_s,
        )

    async def _send(
        self, limits: HttpLimits, traceparent: str | None, invocation: Invocation | None
    ) -> dict[str, Any]:
        headers = with_traceparent(self.headers, traceparent)
        if self.json is not None:
            headers.setdefault("Content-Type", "application/json")
        request = Request.made(
            self.method,
            self.url,
            headers=headers,
            body=self.content,
            secrets=PermittedSecrets.of_environment(),
        )
        async with HttpClient.of_environment(limits) as client:
            if invocation is None:
                response = await client.follow(request)
            else:
                response = await client.change(request, invocation)
        is_repeatable = self.idempotent or self.method in IDEMPOTENT_METHODS
        return result_of(
            response, self.expect or HTTP_OK, method=self.method, is_repeatable=is_repeatable
        )


def result_of(
    response: Response, expected: "range | tuple[int, ...]", *, method: str, is_repeatable: bool
) -> dict[str, Any]:
    """Return an expected answer as plain JSON.

    Raises `HttpStatusError` for an error status, `InvalidOutputError` for another success.
    """
    text = text_of(response)
    if response.status not in expected:
        message = f"{method} {response.url} answered with status {response.status}"
        if class_of_status(response.status) is FailureClass.VALID:
            raise InvalidOutputError(
                f"{message}, expected {', '.join(map(str, expected))}", raw=text or ""
            )
        failure = failure_of_response(response, message)
        if response.status == CONFLICT and not is_repeatable:
            # Sent once in its life: it cannot be in conflict with itself.
            failure = attrs.evolve(failure, code=HttpStatusError.code)
        raise HttpStatusError(message, failure=failure)
    is_json, value = _json(response, text)
    body, is_cut = (None, False) if is_json or text is None else _recordable(text)
    result = HttpResult(
        status=response.status,
        url=response.url,
        headers=response.headers,
        body=body,
        json=value,
        size_bytes=response.size_bytes,
        is_truncated=response.is_cut or is_cut,
    )
    return attrs.asdict(result)


def _json(response: Response, text: str | None) -> tuple[bool, Any]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if text is None or response.is_cut or not (kind == "application/json" or kind[-5:] == "+json"):
        return False, None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False, None
    return True, value


def _recordable(text: str) -> tuple[str, bool]:
    """Return as much of a text as fits into a step; JSON writes some characters as six."""
    if len(orjson.dumps(text)) <= BODY_JSON_MAX:
        return text, False
    return text[: BODY_JSON_MAX // 6], True


def _is_open(status: int) -> bool:
    return status >= SERVER_ERROR or status in UNSETTLED_STATUSES


def _is_one_line(value: str) -> bool:
    return not any(each in value for each in "\r\n\0")
