"""The tokens of model calls."""

from collections.abc import Mapping
from typing import Any, Final, Self

from attrs import asdict, fields, frozen


@frozen(kw_only=True)
class Usage:
    """Tokens of one call, or of many added up.

    The first four are disjoint, as the Messages API counts them: `input_tokens` are those that were
    neither read from the prompt cache nor written to it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """The part of `cache_write_tokens` that is kept for an hour."""
    web_searches: int = 0
    """Searches that the API made."""
    service_tier: str = ""
    """`batch` or `priority`; empty for the standard tier, and for many calls."""
    inference_geo: str = ""
    """The one region that the call stayed in; empty if it was free to run anywhere."""
    speed: str = ""
    """`fast`, or empty."""
    is_estimated: bool = False
    """The server counted nothing: these are likely figures."""

    @property
    def prompt_tokens(self) -> int:
        """The length of the prompt, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens of every kind: what a budget in tokens counts."""
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            web_searches=self.web_searches + other.web_searches,
        )

    def tokens(self) -> dict[str, int]:
        """Return the tokens by their kind: disjoint counts."""
        return {name: getattr(self, name) for name in TOKEN_KINDS}

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`; rarely used fields are left out while unset."""
        return asdict(self, filter=lambda each, value: bool(value) or each.name in TOKEN_KINDS)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The usage that `to_json` wrote; a missing count is 0, an unknown key a TypeError."""
        return cls(**plain)

    @classmethod
    def known_part(cls, plain: Mapping[str, Any]) -> Self:
        """The usage that `to_json` wrote, for people: without what only a newer release counts."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in plain.items() if name in names})


TOKEN_KINDS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
