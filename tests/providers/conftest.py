"""A client of each API, by its name, for a strict fake of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs

from cortex.agent.models import google, openai
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.google import GoogleModel
from cortex.agent.models.openai import OpenAIModel
from cortex.agent.models.streamed import StreamingClient
from cortex.domain.model import ModelRequest
from tests.e2e.conftest import database, gate, pods
from tests.support.servers.model_apis import KEY, ModelApis

__all__ = ["database", "gate", "pods"]

APIS: Final = ("openai", "chat", "google")


def endpoint_of(api: str, apis: ModelApis, *, key: str | None = KEY) -> Endpoint:
    """Return an endpoint of the settings, named after the API."""
    standard = google.STANDARD if api == "google" else openai.STANDARD
    return attrs.evolve(
        standard,
        name=f"the_{api}",
        base_url=apis.url(api),
        api_key=key,
        api="chat" if api == "chat" else "responses",
    )


@asynccontextmanager
async def client_of(
    api: str, apis: ModelApis, *, key: str | None = KEY, name: str | None = None
) -> AsyncIterator[StreamingClient[Any]]:
    endpoint = endpoint_of(api, apis, key=key)
    endpoint = attrs.evolve(endpoint, name=name or endpoint.name)
    client: StreamingClient[Any] = (
        GoogleModel(endpoint) if api == "google" else OpenAIModel(endpoint)
    )
    try:
        yield client
    finally:
        await client.aclose()


def asking(**fields: Any) -> ModelRequest:
    given = {
        "model": "some-model",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 500,
        **fields,
    }
    return ModelRequest(**given)
