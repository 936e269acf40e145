"""The model client for the Gemini API, over its REST interface.

Google's SDK is an asyncio one. With an HTTP client of httpx2 it runs on trio, but leaves generators
and their connections unfinished after a chunk that it cannot read, gives requests no limit for
connecting, and reads lines of any length.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from cortex.agent.models import google_errors, google_requests
from cortex.agent.models.client import CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import ErrorEventError
from cortex.agent.models.failures import ApiError, ErrorReader, Headers
from cortex.agent.models.google_events import GeminiDecoder
from cortex.agent.models.google_requests import body_of
from cortex.agent.models.streamed import Body, Exchange, StreamingClient
from cortex.domain.classification import register_library
from cortex.domain.model import Capabilities, ModelRequest

if TYPE_CHECKING:
    import httpx2

PROVIDER: Final = google_requests.PROVIDER
STANDARD: Final = Endpoint(
    name=PROVIDER,
    kind="google",
    key_from="GEMINI_API_KEY",
    address_from="GOOGLE_GEMINI_BASE_URL",
    vendor="Google",
)
DEFAULT_URL: Final = "https://generativelanguage.googleapis.com"
VERSION: Final = "v1beta"
KEYS: Final = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
ERROR_MAX_BYTES: Final = 256 * 1024
_OK: Final = 200

register_library(google_errors.ERRORS)


class _RefusedError(Exception):
    """The API answered with another status than 200."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class GoogleModel(StreamingClient["httpx2.AsyncClient"]):
    """A `ModelClient` for the Gemini API."""

    def provider_of(self, model: str) -> str:  # noqa: ARG002 -- all of them
        return "gcp.gemini"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002 -- all that it lists
        return Capabilities(gifs=False)  # its page on images names the formats

    def _make(self) -> "httpx2.AsyncClient":
        return _make_client(self.endpoint)

    async def _close(self, sdk: "httpx2.AsyncClient") -> None:
        await sdk.aclose()

    def _exchange(
        self, sdk: "httpx2.AsyncClient", request: ModelRequest, limits: CallLimits
    ) -> Exchange:
        from cortex.agent.models.http import timeout_of  # noqa: PLC0415 -- loaded by now

        content = json.dumps(body_of(request), ensure_ascii=False).encode()
        name = quote(request.model, safe="/")
        path = f"{VERSION}/{name if '/' in name else f'models/{name}'}:streamGenerateContent"

        @asynccontextmanager
        async def body() -> AsyncIterator[Body]:
            async with sdk.stream(
                "POST",
                path,
                params={"alt": "sse"},
                content=content,
                timeout=timeout_of(limits.connect_s),
            ) as response:
                headers = response.headers
                if response.status_code != _OK:
                    raise _RefusedError(response.status_code, headers, await _start_of(response))
                kind = headers.get("content-type", "nothing").partition(";")[0].strip().lower()
                calls_max = None if request.options.parallel_calls else 1
                yield Body(
                    pieces=response.aiter_bytes(),
                    decoder=GeminiDecoder(
                        kind, calls_max=calls_max, tier=headers.get("x-gemini-service-tier")
                    ),
                    headers=headers,
                    request_id=headers.get("x-goog-request-id"),
                    is_framed="content-length" in headers or "transfer-encoding" in headers,
                )

        return Exchange(
            host=sdk.base_url.netloc.decode("ascii"),
            body=body(),
            reader=ErrorReader(protocol="the Gemini API", connection_errors=(), read=_read),
        )


def _make_client(endpoint: Endpoint) -> "httpx2.AsyncClient":
    from cortex.agent.models.http import (  # noqa: PLC0415 -- with httpx2
        checked_key,
        checked_url,
        http_client,
    )

    base_url, key = endpoint.base_url, endpoint.api_key
    if not endpoint.is_named:
        base_url = base_url or os.environ.get("GOOGLE_GEMINI_BASE_URL")
        key = key or next(filter(None, map(os.environ.get, KEYS)), None)
    url = checked_url(base_url or DEFAULT_URL, endpoint)
    client = http_client(url)
    client.base_url = url
    client.follow_redirects = True
    client.headers["content-type"] = "application/json"
    if endpoint.needs_key:
        client.headers["x-goog-api-key"] = checked_key(key, endpoint)
    return client


async def _start_of(response: "httpx2.Response") -> bytes:
    """Return the body of a refusal, up to a limit. Read to its end: a generator stays otherwise."""
    body = b""
    async for piece in response.aiter_bytes():
        body += piece[: ERROR_MAX_BYTES - len(body)]
    return body


def _read(error: Exception) -> ApiError | None:
    match error:
        case ErrorEventError():
            details: Any = error.body
            status, headers = _OK, error.headers
        case _RefusedError():
            try:
                details = json.loads(error.body)
            except (ValueError, RecursionError):
                details = {"message": error.body.decode(errors="replace")}
            status, headers = error.status, error.headers
        case _:
            return None
    found = google_errors.error_of(details)
    name = found.get("status")
    return ApiError(
        status=status,
        type=name if isinstance(name, str) else None,
        message=str(found.get("message") or "the server gave no reason"),
        code=google_errors.code_of(found, status),
        headers=headers,
        pause_s=lambda _: google_errors.delay_s(found),
    )
