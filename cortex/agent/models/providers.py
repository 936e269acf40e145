"""The model providers that a pod can call: which client it gets, and what that needs.

To add one: write its client beside `anthropic.py`, choose it in `chosen`, and add the variables
that hold its credentials.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from cortex.agent.models.anthropic import AnthropicModel
from cortex.agent.models.client import ModelClient
from cortex.domain.classification import describe
from cortex.domain.errors import UsageError

CREDENTIALS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""Variables of the environment whose values are never shown or stored."""


@attrs.frozen
class ModelTrouble:
    """Why model calls will fail; logged once the pod is ready."""

    event: str
    error: str | None = None
    hint: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen(kw_only=True)
class Provider:
    """The client of a provider, and its slow imports."""

    client: ModelClient
    preload: Callable[[], ModelTrouble | None]
    """Blocks for a second: call it in a thread. A model call before waits for it."""


def chosen(*, api_key: str | None = None, base_url: str | None = None) -> Provider:
    """Return the provider of a pod's models; what is None comes from the environment."""
    client = AnthropicModel(api_key=api_key, base_url=base_url)
    has_key = api_key is not None or any(name.startswith("ANTHROPIC_") for name in os.environ)
    return Provider(client=client, preload=partial(_preload, client, has_key=has_key))


def _preload(client: AnthropicModel, *, has_key: bool) -> ModelTrouble | None:
    # A pod without models is fine for jobs that need none, and saves the second of the SDK's
    # import.
    if not has_key:
        return ModelTrouble("no key for models in the environment", hint="set ANTHROPIC_API_KEY")
    try:
        client.preload()
    except UsageError as error:
        return ModelTrouble("model calls will fail", error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001 -- each call will raise it: no reason to end the pod
        return ModelTrouble("model calls will fail", describe(error))
    return None
