"""The models that a pod can call: `PROVIDER:MODEL`, and which client gets a call of it.

A name without a provider is Anthropic's. `PROVIDER` may also be the name of an endpoint in the
settings: another address, with a key of its own, that speaks one of the known APIs.

To add a provider: write its client beside `anthropic.py` and add its row to `PROVIDERS` and its
name to `Kind` in `cortex.domain.model_endpoints`; its SDK goes to the extras of pyproject.toml.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Final

import attrs

from cortex.agent.models import anthropic, google, openai
from cortex.agent.models.batch_api import BatchApi
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import ModelNotSetUpError
from cortex.agent.models.streamed import StreamingClient
from cortex.domain.classification import describe
from cortex.domain.errors import UsageError
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.model_endpoints import ModelEndpoint
from cortex.domain.usage import Usage

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
DEFAULT: Final = anthropic.PROVIDER
"""The provider of a model's bare name."""


@attrs.frozen(kw_only=True)
class ModelTrouble:
    """Why model calls will fail; logged once the pod is ready."""

    event: str
    error: str | None = None
    hint: str | None = None


@attrs.frozen(kw_only=True)
class Provider:
    """One API that Cortex speaks."""

    standard: Endpoint
    """Its own address and key, from the SDK's variables."""
    client: Callable[[Endpoint], StreamingClient[Any]]
    credentials: tuple[str, ...]
    """Variables of the environment whose values are never shown or stored."""
    package: str | None = None
    """The module of its SDK, if that is optional: the extra has the same name."""

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None

    def require_installed(self) -> None:
        """Raise `ModelNotSetUpError` if the SDK is missing."""
        if not self.is_installed:
            raise ModelNotSetUpError(
                f"provider {self.standard.name!r} needs a package that is not installed",
                hint=f"pip install cortex-durable[{self.package}]",
            )


PROVIDERS: Final[Mapping[str, Provider]] = {
    anthropic.PROVIDER: Provider(
        standard=anthropic.STANDARD,
        client=anthropic.AnthropicModel,
        credentials=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    openai.PROVIDER: Provider(
        standard=openai.STANDARD,
        client=openai.OpenAIModel,
        credentials=("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"),
        package="openai",
    ),
    google.PROVIDER: Provider(
        standard=google.STANDARD,
        client=google.GoogleModel,
        credentials=google.KEYS,
    ),
}
CREDENTIALS: Final = tuple(name for each in PROVIDERS.values() for name in each.credentials)
"""Variables of the environment whose values are never shown or stored."""


def endpoints_of(
    settings: Iterable[ModelEndpoint], environ: Mapping[str, str] = os.environ
) -> tuple[Endpoint, ...]:
    """Return the endpoints of the settings, with their keys from the environment."""
    return tuple(_endpoint_of(each, environ) for each in settings)


def _endpoint_of(setting: ModelEndpoint, environ: Mapping[str, str]) -> Endpoint:
    standard, variable = PROVIDERS[setting.kind].standard, setting.key_variable
    has_variable = variable is not None
    return Endpoint(
        name=setting.name,
        kind=setting.kind,
        base_url=setting.base_url,
        api_key=environ.get(variable) if variable is not None else None,
        key_from=variable if variable is not None else standard.key_from,
        address_from=(
            standard.address_from
            if setting.is_own and setting.base_url is None
            else f"base_url of [models.{setting.name}]"
        ),
        vendor=standard.vendor,
        needs_key=has_variable or setting.is_own,
        api=setting.api,
        lacks=setting.lacks,
    )


class Models:
    """A `ModelClient` for all models of a pod. Makes a client when its first model is called."""

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        standard = [each.standard for each in PROVIDERS.values()]
        self._endpoints = {each.name: each for each in (*standard, *endpoints)}
        self._clients: dict[str, StreamingClient[Any]] = {}

    def provider_of(self, model: str) -> str:
        return self._client(model)[0].provider_of(model)

    def capabilities(self, model: str) -> Capabilities:
        client, name = self._client(model)
        lacks = dict.fromkeys(client.endpoint.lacks, False)
        return attrs.evolve(client.capabilities(name), **lacks)

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> ModelResponse:
        client, name = self._client(request.model)
        PROVIDERS[client.endpoint.kind].require_installed()
        return await client.respond(
            request,
            name=name,
            on_text=on_text,
            on_open=on_open,
            on_usage=on_usage,
            limits=limits,
        )

    def check(self, model: str) -> None:
        """Raise `UsageError` if calls of a model cannot work: no key, address or package.

        Blocks for a second: it imports the SDK.
        """
        client, _ = self._client(model)
        PROVIDERS[client.endpoint.kind].require_installed()
        client.preload()

    def preload(self) -> tuple[ModelTrouble, ...]:
        """Import the SDKs that have a key, so that first calls need not wait for them.

        Blocks for a second: call it in a thread. A pod without models is fine for jobs that need
        none, and saves the second.
        """
        chosen = [each for each in self._endpoints.values() if _has_key(each)]
        if not chosen:
            names = ", ".join(each.standard.key_from for each in PROVIDERS.values())
            hint = f"set {names.replace(', ', ' or ')}"
            return (ModelTrouble(event="no key for models in the environment", hint=hint),)
        found = (self._preloaded(each) for each in chosen)
        return tuple(each for each in found if each is not None)

    def endpoint_of(self, model: str) -> str:
        """Return the name of the endpoint that gets calls of a model. Raises `UsageError`."""
        return self._endpoint(model)[0].name

    def named_there(self, model: str) -> str:
        """Return a model's name at its endpoint."""
        return self._endpoint(model)[1]

    def batch_endpoints(self) -> tuple[str, ...]:
        """Return the endpoints whose batches this process may use: those with a key."""
        return tuple(
            name
            for name, each in self._endpoints.items()
            if _has_key(each) and self._of(each).batches() is not None
        )

    def batches(self, endpoint: str) -> BatchApi:
        """Return the batches of one of `batch_endpoints`."""
        found = self._of(self._endpoints[endpoint]).batches()
        if found is None:
            raise AssertionError(f"endpoint {endpoint!r} has no batches")
        return found

    async def aclose(self) -> None:
        """Close the idle connections. Calls in flight break."""
        for client in self._clients.values():
            await client.aclose()

    def _preloaded(self, endpoint: Endpoint) -> ModelTrouble | None:
        try:
            PROVIDERS[endpoint.kind].require_installed()
            self._of(endpoint).preload()
        except UsageError as error:
            return ModelTrouble(event="model calls will fail", error=error.message, hint=error.hint)
        except Exception as error:  # noqa: BLE001 -- each call will raise it: no reason to end the pod
            return ModelTrouble(event="model calls will fail", error=describe(error))
        return None

    def _client(self, model: str) -> tuple[StreamingClient[Any], str]:
        """Return the client of a model, and the model's name there."""
        endpoint, name = self._endpoint(model)
        return self._of(endpoint), name

    def _of(self, endpoint: Endpoint) -> StreamingClient[Any]:
        known = self._clients.get(endpoint.name)
        if known is not None:
            return known
        made = PROVIDERS[endpoint.kind].client(endpoint)
        return self._clients.setdefault(endpoint.name, made)  # a thread may preload meanwhile

    def _endpoint(self, model: str) -> tuple[Endpoint, str]:
        """Return where a model is called, and its name there. Raises `UsageError`."""
        prefix, colon, name = model.partition(":")
        if colon and prefix in self._endpoints:
            return self._endpoints[prefix], name
        if colon and _NAME.fullmatch(prefix) and _is_real(self._endpoints[DEFAULT]):
            known = ", ".join(self._endpoints)
            raise UsageError(
                f"model {model!r}: there is no provider or endpoint {prefix!r}",
                hint=f"there are {known}; add others under [models.NAME] in config.toml",
            )
        return self._endpoints[DEFAULT], model


def _is_real(endpoint: Endpoint) -> bool:
    """Return whether it is the provider's own address, whose models have no colon in their names.

    A gateway's may have one.
    """
    return not (endpoint.base_url or os.environ.get(endpoint.address_from))


def _has_key(endpoint: Endpoint) -> bool:
    """Return whether an endpoint is meant to be used, as far as settings and environment show.

    Without its package a provider's own one is not: its key may be there for another program.
    """
    if endpoint.is_named or endpoint.api_key is not None:
        return True
    provider = PROVIDERS[endpoint.kind]
    prefix = f"{endpoint.key_from.partition('_')[0]}_"
    has_key = any(name.startswith((prefix, *provider.credentials)) for name in os.environ)
    return has_key and provider.is_installed
