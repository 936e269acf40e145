"""An address of a provider's API, with its key: what a client is made of."""

import attrs

from cortex.domain.model_endpoints import Kind, OpenAIApi


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where one client sends its calls. What is None is looked up in the SDK's own variables."""

    name: str
    """What a model's name begins with before the colon."""
    kind: Kind
    base_url: str | None = None
    api_key: str | None = attrs.field(default=None, repr=False)
    key_from: str
    """The variable of the environment that holds the key."""
    address_from: str
    """The variable or setting that gives the base URL."""
    vendor: str
    """Who answers questions about the account."""
    needs_key: bool = True
    """False: it has none, as a server on this machine."""
    api: OpenAIApi = "responses"
    lacks: tuple[str, ...] = ()
    """What its models cannot do: fields of `Capabilities`."""

    @property
    def is_named(self) -> bool:
        """It comes from the settings: nothing of it is taken from the SDK's own variables."""
        return self.name != self.kind
