"""What a model call costs."""

import re
from decimal import Decimal

from attrs import frozen

from cortex.domain.usage import Usage

PRICED_TOKENS = 1_000_000  # prices are quoted per million tokens

# What may follow a model's name without making it another model: a release date or "latest".
# Anything else ("-1", "-fast") is a model of its own, whose price we do not know.
_RELEASE = re.compile(r"(?:[-@](?:\d{8}|latest))?")


@frozen
class Price:
    """US dollars per million tokens. `cache_write` is that of the five-minute cache."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal


@frozen
class LongPromptPrice:
    """`price` holds for calls whose prompt, cached or not, is over `prompt_tokens`."""

    prompt_tokens: int
    price: Price


def _price(input_: str, output: str, *, cache_read: str, cache_write: str) -> Price:
    return Price(Decimal(input_), Decimal(output), Decimal(cache_read), Decimal(cache_write))


_FABLE_5 = _price("10", "50", cache_read="1", cache_write="12.50")
_FABLE_5_1 = _price("10", "50", cache_read="0.25", cache_write="12.50")
_OPUS_4_5 = _price("5", "25", cache_read="0.50", cache_write="6.25")
_SONNET_4_5 = _price("3", "15", cache_read="0.30", cache_write="3.75")

# List prices as of October 2026: https://platform.claude.com/docs/en/about-claude/pricing
PRICES: dict[str, Price] = {
    "claude-fable-5-2": _price("8", "40", cache_read="0.20", cache_write="10"),
    "claude-fable-5-1": _FABLE_5_1,
    "claude-mythos-5-1": _FABLE_5_1,
    "claude-fable-5": _FABLE_5,
    "claude-mythos-5": _FABLE_5,
    "claude-opus-5-5": _price("4", "20", cache_read="0.20", cache_write="5"),
    "claude-opus-5": _OPUS_4_5,
    "claude-opus-4-8": _OPUS_4_5,
    "claude-opus-4-7": _OPUS_4_5,
    "claude-opus-4-6": _OPUS_4_5,
    "claude-opus-4-5": _OPUS_4_5,
    "claude-sonnet-5-5": _price("2", "10", cache_read="0.10", cache_write="2.50"),
    "claude-sonnet-5": _price("2", "10", cache_read="0.20", cache_write="2.50"),
    "claude-sonnet-4-6": _SONNET_4_5,
    "claude-sonnet-4-5": _SONNET_4_5,
    "claude-haiku-5-5": _price("0.10", "0.50", cache_read="0.01", cache_write="0.125"),
    "claude-haiku-4-5": _price("1", "5", cache_read="0.10", cache_write="1.25"),
    # The demo's scripted model: play money, at a small model's price, so that budgets can be shown.
    "scripted": _price("1", "5", cache_read="0.10", cache_write="1.25"),
}

LONG_PROMPT_PRICES: dict[str, LongPromptPrice] = {
    "claude-haiku-5-5": LongPromptPrice(
        100_000, _price("0.50", "2.50", cache_read="0.05", cache_write="0.625")
    ),
}


def cost(model: str, usage: Usage) -> Decimal | None:
    """US dollars for one call's usage; None when the model's price is not known.

    Give it the usage of a single call: the price of some models depends on the prompt's length.
    """
    name = next((each for each in PRICES if _names(each, model)), None)
    if name is None:
        return None
    price, long = PRICES[name], LONG_PROMPT_PRICES.get(name)
    if long is not None and usage.prompt_tokens > long.prompt_tokens:
        price = long.price
    dollars = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    )
    return dollars / PRICED_TOKENS


def _names(name: str, model: str) -> bool:
    """Whether `model` is the model of that name, with or without its release."""
    return model.startswith(name) and _RELEASE.fullmatch(model[len(name) :]) is not None
