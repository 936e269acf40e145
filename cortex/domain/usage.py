"""How many tokens a model call used."""

from collections.abc import Mapping
from typing import Self

from attrs import asdict, frozen


@frozen(kw_only=True)
class Usage:
    """Tokens of one call, or of many added up.

    The four are disjoint, as the Messages API counts them: `input_tokens` are those that were
    neither read from the prompt cache nor written to it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

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
        )

    def to_json(self) -> dict[str, int]:
        """A plain dict, the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, int]) -> Self:
        """The usage that `to_json` wrote; a missing count is 0, an unknown key a TypeError."""
        return cls(**plain)
