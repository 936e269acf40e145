"""The model client on the OpenAI SDK: OpenAI itself, and the many servers that speak its APIs.

The SDK runs on trio: its HTTP client is httpx2, and it waits by anyio.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from cortex.agent.models import openai_errors, openai_requests
from cortex.agent.models.client import CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import ErrorEventError
from cortex.agent.models.failures import ApiError, ErrorReader
from cortex.agent.models.openai_events import ChatDecoder, ResponsesDecoder
from cortex.agent.models.openai_requests import chat_arguments, responses_arguments
from cortex.agent.models.streamed import Body, Exchange, StreamingClient
from cortex.domain.classification import register_library
from cortex.domain.model import Capabilities, ModelRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PROVIDER: Final = openai_requests.PROVIDER
STANDARD: Final = Endpoint(
    name=PROVIDER,
    kind="openai",
    key_from="OPENAI_API_KEY",
    address_from="OPENAI_BASE_URL",
    vendor="OpenAI",
)
DEFAULT_URL: Final = "https://api.openai.com/v1"
NO_KEY: Final = "none"
"""Sent to an endpoint without a key, such as a server on this machine: the SDK sends something."""
_HOST: Final = "api.openai.com"
WITHOUT_OUTPUT: Final = ("gpt-3.5", "gpt-4-")
"""The beginning of the names of models from before its structured outputs."""
_OK: Final = 200


register_library(openai_errors.ERRORS)


class OpenAIModel(StreamingClient["AsyncOpenAI"]):
    """A `ModelClient` for the Responses API or Chat Completions, as the endpoint says."""

    def provider_of(self, model: str) -> str:  # noqa: ARG002 -- all of them
        return PROVIDER

    def capabilities(self, model: str) -> Capabilities:
        # Servers that only resemble OpenAI's seldom take documents.
        is_openai = self.endpoint.base_url is None or _HOST in self.endpoint.base_url
        return Capabilities(
            documents=is_openai or self.endpoint.api == "responses",
            output=not (is_openai and model.startswith(WITHOUT_OUTPUT)),
        )

    def _make(self) -> "AsyncOpenAI":
        return _make_client(self.endpoint)

    async def _close(self, sdk: "AsyncOpenAI") -> None:
        await sdk.close()

    def _exchange(self, sdk: "AsyncOpenAI", request: ModelRequest, limits: CallLimits) -> Exchange:
        from openai import APIConnectionError  # noqa: PLC0415 -- loaded by now

        from cortex.agent.models.http import timeout_of  # noqa: PLC0415 -- as above

        is_chat = self.endpoint.api == "chat"
        host = sdk.base_url.netloc.decode("ascii")
        if is_chat:
            arguments = chat_arguments(request, is_openai=host == _HOST)
        else:
            arguments = responses_arguments(request)
        resource: Any = sdk.chat.completions if is_chat else sdk.responses

        @asynccontextmanager
        async def body() -> AsyncIterator[Body]:
            async with resource.with_streaming_response.create(
                stream=True, timeout=timeout_of(limits.connect_s), **arguments
            ) as response:
                headers = response.headers
                kind = headers.get("content-type", "nothing").partition(";")[0].strip().lower()
                yield Body(
                    pieces=response.iter_bytes(),
                    decoder=ChatDecoder(kind) if is_chat else ResponsesDecoder(kind),
                    headers=headers,
                    request_id=headers.get("x-request-id"),
                    is_framed="content-length" in headers or "transfer-encoding" in headers,
                )

        protocol = "Chat Completions" if is_chat else "the Responses API"
        return Exchange(
            host=host,
            body=body(),
            reader=ErrorReader(
                protocol=protocol, connection_errors=(APIConnectionError,), read=_read
            ),
        )


def _make_client(endpoint: Endpoint) -> "AsyncOpenAI":
    import os  # noqa: PLC0415 -- with the SDK

    from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # noqa: PLC0415 -- slow to import

    from cortex.agent.models.http import (  # noqa: PLC0415 -- with httpx2
        checked_key,
        checked_url,
        http_client,
    )

    base_url, key = endpoint.base_url, endpoint.api_key
    if not endpoint.is_named:
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        key = key or os.environ.get("OPENAI_API_KEY")
    url = checked_url(base_url or DEFAULT_URL, endpoint)
    client = AsyncOpenAI(
        api_key=checked_key(key, endpoint) if endpoint.needs_key else NO_KEY,
        base_url=url,
        max_retries=0,
        http_client=http_client(url, DefaultAsyncHttpxClient),
    )
    if endpoint.is_named:
        # The variables of the standard endpoint are not for another one's server.
        client.organization = client.project = client.admin_api_key = None
        client._custom_headers = {}  # noqa: SLF001 -- those of OPENAI_CUSTOM_HEADERS
    _ = client.responses, client.chat.completions  # imports what the first call needs
    return client


def _read(error: Exception) -> ApiError | None:
    from openai import APIStatusError  # noqa: PLC0415 -- loaded by now

    if isinstance(error, ErrorEventError):
        body = error.body["error"]
        message = str(body.get("message") or "the server gave no reason")
        code, type_ = body.get("code"), body.get("type")
        return ApiError(
            status=_OK,
            type=str(code or type_ or "error"),
            message=message,
            code=openai_errors.code_in_stream(code=code, type_=type_, message=message),
            headers=error.headers,
        )
    if isinstance(error, APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        message = str(body.get("message") or error.message)
        return ApiError(
            status=error.status_code,
            type=str(error.code or error.type) if error.code or error.type else None,
            message=message,
            code=openai_errors.code_of(
                error.status_code, code=error.code, type_=error.type, message=message
            ),
            headers=error.response.headers,
            request_id=error.request_id,
            pause_s=lambda now: openai_errors.ERRORS.pause_s(error, now),
        )
    return None
