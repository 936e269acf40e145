"""The cost of a model call."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Self

from attrs import evolve, field, fields_dict, frozen

from cortex.domain.errors import UsageError
from cortex.domain.usage import Usage

PRICED_TOKENS = 1_000_000  # prices are quoted per million tokens
PRICED_SEARCHES = 1_000

SHOWN_MAX: Final = 60
"""Characters of a wrong value in an error."""

# A suffix that does not make it another model: a release date or "latest". Any other suffix ("-1",
# "-fast") is a model of its own, with an unknown price.
_RELEASE = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))?")


WEB_SEARCH_USD: Final = Decimal(10)
"""US dollars per thousand searches that the API makes: the same for all models and terms."""
BATCH: Final = Decimal("0.5")
"""Factor on all tokens of the batch tier."""
FAST: Final = Decimal(2)
"""Factor on all tokens in fast mode."""
PRIORITY: Final[Mapping[str, Decimal]] = {"openai": Decimal("2.5"), "google": Decimal(2)}
"""Factor on all tokens of the priority tier, by provider.

OpenAI's is 1.8 to 2.5, Google's 1.75 to 2: the dearest, so that no budget is overspent unseen.
Anthropic agrees the tier's price with each customer, for the most part below the list price.
"""
IN_ONE_REGION: Final = Decimal("1.1")
"""Factor on all tokens of inference that stays in one region."""


@frozen
class Price:
    """US dollars per million tokens. `cache_write` is that of the five-minute cache."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal = field()
    web_search: Decimal = WEB_SEARCH_USD
    """Per thousand searches."""

    @cache_write_1h.default
    def _twice_the_input(self) -> Decimal:
        return 2 * self.input

    def to_json(self) -> dict[str, str]:
        """A plain dict with canonical text: equal prices give equal text."""
        return {name: f"{getattr(self, name).normalize():f}" for name in FIELDS}

    @classmethod
    def from_json(cls, plain: Mapping[str, str]) -> Self:
        """The price that `to_json` wrote; one that an older version wrote gets the defaults."""
        return cls(**{name: Decimal(plain[name]) for name in FIELDS if name in plain})

    def cost(self, usage: Usage) -> Decimal:
        """Return US dollars for one call at this price, before the factors of its terms."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
        ) / PRICED_TOKENS


FIELDS: Final = tuple(fields_dict(Price))
PRICE_MAX: Final = Decimal(1_000_000)
"""US dollars per million tokens; a higher price is a typing error."""


@frozen
class LongPromptPrice:
    """`price` applies to calls whose prompt, cached or not, is over `prompt_tokens`."""

    prompt_tokens: int
    price: Price


def _price(input_: str, output: str, *, cache_read: str, cache_write: str) -> Price:
    return Price(Decimal(input_), Decimal(output), Decimal(cache_read), Decimal(cache_write))


def _gemini(input_: str, output: str, *, cache_read: str, web_search: str = "14") -> Price:
    price = _price(input_, output, cache_read=cache_read, cache_write=input_)
    return evolve(price, web_search=Decimal(web_search))


def _openai_long(price: Price) -> LongPromptPrice:
    """Return the price of prompts over 272,000 tokens: twice the input, half more for output."""
    return LongPromptPrice(
        272_000,
        Price(2 * price.input, price.output * 3 / 2, 2 * price.cache_read, 2 * price.cache_write),
    )


PRICES_AS_OF: Final = date(2026, 11, 28)
"""When the list prices were last compared with the published ones."""

_FABLE_5 = _price("10", "50", cache_read="1", cache_write="12.50")
_FABLE_5_1 = _price("10", "50", cache_read="0.25", cache_write="12.50")
_FABLE_5_2 = _price("8", "40", cache_read="0.20", cache_write="10")
_OPUS_4 = _price("15", "75", cache_read="1.50", cache_write="18.75")
_OPUS_4_5 = _price("5", "25", cache_read="0.50", cache_write="6.25")
_SONNET_4 = _price("3", "15", cache_read="0.30", cache_write="3.75")

# https://platform.claude.com/docs/en/about-claude/pricing; a test compares them with another list.
PRICES: dict[str, Price] = {
    "claude-fable-5-2": _FABLE_5_2,
    "claude-mythos-5-2": _FABLE_5_2,
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
    "claude-opus-4-1": _OPUS_4,
    "claude-opus-4-0": _OPUS_4,
    "claude-opus-4": _OPUS_4,
    "claude-sonnet-5-5": _price("2", "10", cache_read="0.10", cache_write="2.50"),
    "claude-sonnet-5": _price("2", "10", cache_read="0.20", cache_write="2.50"),
    "claude-sonnet-4-6": _SONNET_4,
    "claude-sonnet-4-5": _SONNET_4,
    "claude-sonnet-4-0": _SONNET_4,
    "claude-sonnet-4": _SONNET_4,
    "claude-3-7-sonnet": _SONNET_4,
    "claude-haiku-5-5": _price("0.10", "0.50", cache_read="0.01", cache_write="0.125"),
    "claude-haiku-4-5": _price("1", "5", cache_read="0.10", cache_write="1.25"),
    "claude-3-5-haiku": _price("0.80", "4", cache_read="0.08", cache_write="1"),
    # https://developers.openai.com/api/docs/pricing: nothing extra for writing to the cache before
    # GPT-5.6.
    "openai:gpt-6.1-sol": _price("2", "10", cache_read="0.1", cache_write="2.5"),
    "openai:gpt-6.1-terra": _price("1", "5", cache_read="0.05", cache_write="1.25"),
    "openai:gpt-6-astra": _price("10", "50", cache_read="1", cache_write="12.50"),
    "openai:gpt-6-sol": _price("2", "10", cache_read="0.20", cache_write="2.50"),
    "openai:gpt-6-luna": _price("0.10", "0.50", cache_read="0.01", cache_write="0.125"),
    "openai:gpt-5.6-sol": _price("4", "20", cache_read="0.40", cache_write="5"),
    "openai:gpt-5.6-terra": _price("2", "12", cache_read="0.20", cache_write="2.50"),
    "openai:gpt-5.6-luna": _price("0.20", "1.20", cache_read="0.02", cache_write="0.25"),
    "openai:gpt-5.5": _price("5", "30", cache_read="0.50", cache_write="5"),
    "openai:gpt-5.4": _price("2.50", "15", cache_read="0.25", cache_write="2.50"),
    "openai:gpt-5.4-mini": _price("0.75", "4.50", cache_read="0.075", cache_write="0.75"),
    "openai:gpt-5.4-nano": _price("0.20", "1.25", cache_read="0.02", cache_write="0.20"),
    "openai:gpt-5.2": _price("1.75", "14", cache_read="0.175", cache_write="1.75"),
    "openai:gpt-5.1": _price("1.25", "10", cache_read="0.125", cache_write="1.25"),
    "openai:gpt-5": _price("1.25", "10", cache_read="0.125", cache_write="1.25"),
    "openai:gpt-5-mini": _price("0.25", "2", cache_read="0.025", cache_write="0.25"),
    "openai:gpt-5-nano": _price("0.05", "0.40", cache_read="0.005", cache_write="0.05"),
    # https://ai.google.dev/gemini-api/docs/pricing: text; caching by itself costs nothing to write.
    "google:gemini-4-argon": _gemini("4", "20", cache_read="0.20"),
    "google:gemini-3.8-flash": _gemini("1.50", "7.50", cache_read="0.15"),
    "google:gemini-3.7-flash": _gemini("1.50", "7.50", cache_read="0.15"),
    "google:gemini-3.6-flash": _gemini("1.50", "7.50", cache_read="0.15"),
    "google:gemini-3.5-flash": _gemini("1.50", "9", cache_read="0.15"),
    "google:gemini-3.5-flash-lite": _gemini("0.30", "2.50", cache_read="0.03"),
    "google:gemini-3.1-pro-preview": _gemini("2", "12", cache_read="0.20"),
    "google:gemini-3.1-flash-lite": _gemini("0.25", "1.50", cache_read="0.025"),
    "google:gemini-3-flash-preview": _gemini("0.50", "3", cache_read="0.05"),
    "google:gemini-2.5-pro": _gemini("1.25", "10", cache_read="0.125", web_search="35"),
    "google:gemini-2.5-flash": _gemini("0.30", "2.50", cache_read="0.03", web_search="35"),
    "google:gemini-2.5-flash-lite": _gemini("0.10", "0.40", cache_read="0.01", web_search="35"),
    # The demo's scripted model: play money, at a small model's price, so that budgets can be shown.
    "scripted": _price("1", "5", cache_read="0.10", cache_write="1.25"),
}

LONG_PROMPT_PRICES: dict[str, LongPromptPrice] = {
    "claude-haiku-5-5": LongPromptPrice(
        100_000, _price("0.50", "2.50", cache_read="0.05", cache_write="0.625")
    ),
    "claude-sonnet-4-5": LongPromptPrice(
        200_000, _price("6", "22.50", cache_read="0.60", cache_write="7.50")
    ),
    "google:gemini-3.1-pro-preview": LongPromptPrice(
        200_000, _gemini("4", "18", cache_read="0.40")
    ),
    "google:gemini-2.5-pro": LongPromptPrice(
        200_000, _gemini("2.50", "15", cache_read="0.25", web_search="35")
    ),
    **{
        name: _openai_long(PRICES[name])
        for name in (
            *("openai:gpt-6.1-sol", "openai:gpt-6.1-terra", "openai:gpt-6-astra"),
            *("openai:gpt-6-sol", "openai:gpt-6-luna", "openai:gpt-5.6-sol"),
            *("openai:gpt-5.6-terra", "openai:gpt-5.6-luna", "openai:gpt-5.5", "openai:gpt-5.4"),
        )
    },
}

_ONE_PRICE_IN_ALL_REGIONS: Final = frozenset(
    {
        "claude-opus-4-5",
        "claude-opus-4-1",
        "claude-opus-4-0",
        "claude-opus-4",
        "claude-sonnet-4-5",
        "claude-sonnet-4-0",
        "claude-sonnet-4",
        "claude-3-7-sonnet",
        "claude-haiku-4-5",
        "claude-3-5-haiku",
    }
)
"""Models from before inference in one region had a price of its own."""


@frozen
class PriceTable:
    """Prices by model: those that a job began with, kept on every attempt."""

    prices: Mapping[str, Price]
    long_prompt_prices: Mapping[str, LongPromptPrice] = field(factory=dict)

    def name_of(self, model: str) -> str | None:
        """Return the table's name for a model or a release of it; None if it is unlisted."""
        # A release with a price of its own goes before its model.
        matching = (each for each in self.prices if _names(each, model))
        return model if model in self.prices else next(matching, None)

    def cost(self, model: str, usage: Usage) -> Decimal | None:
        """Return US dollars for one call's usage; None if the model's price is unknown.

        Pass the usage of a single call: the price of some models depends on the prompt's length.
        """
        name = self.name_of(model)
        if name is None:
            return None
        price, long = self.prices[name], self.long_prompt_prices.get(name)
        if long is not None and usage.prompt_tokens > long.prompt_tokens:
            price = long.price
        searches = usage.web_searches * price.web_search / PRICED_SEARCHES
        return price.cost(usage) * _factor(name, usage) + searches

    def saved(self, model: str, usage: Usage) -> Decimal | None:
        """Return US dollars that the prompt cache saved in a call; negative: it cost more.

        None if the cache was not used, or the model's price is unknown.
        """
        if not usage.cache_read_tokens and not usage.cache_write_tokens:
            return None
        plain = evolve(
            usage,
            input_tokens=usage.prompt_tokens,
            cache_read_tokens=0,
            cache_write_tokens=0,
            cache_write_1h_tokens=0,
        )
        without, with_cache = self.cost(model, plain), self.cost(model, usage)
        return None if without is None or with_cache is None else without - with_cache

    def with_overrides(self, overrides: Any) -> "PriceTable":
        """Return the table with prices replaced or added from a person's file.

        `overrides`: model to a mapping of input, output, cache_read, cache_write and
        cache_write_1h, in US dollars per million tokens, and web_search, per thousand searches. For
        a listed model, missing fields keep their price; for another one, cached tokens cost as much
        as input. An overridden price applies to prompts of every length.
        Raises `UsageError` with model, field and value.
        """
        if not isinstance(overrides, Mapping):
            raise UsageError(f"prices: {_shown(overrides)} is not a mapping of models to prices")
        given = {
            model: _overridden(model, each, self.prices.get(model))
            for model, each in overrides.items()
        }
        long = {k: v for k, v in self.long_prompt_prices.items() if k not in given}
        return PriceTable({**self.prices, **given}, long)

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`; equal tables give equal ones."""
        return {
            "prices": {name: self.prices[name].to_json() for name in sorted(self.prices)},
            "long_prompt_prices": {
                name: {"prompt_tokens": long.prompt_tokens, "price": long.price.to_json()}
                for name, long in sorted(self.long_prompt_prices.items())
            },
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        return cls(
            {name: Price.from_json(each) for name, each in plain["prices"].items()},
            {
                name: LongPromptPrice(each["prompt_tokens"], Price.from_json(each["price"]))
                for name, each in plain["long_prompt_prices"].items()
            },
        )


LIST_PRICES = PriceTable(PRICES, LONG_PROMPT_PRICES)


def _factor(name: str, usage: Usage) -> Decimal:
    """Return the factor on the price of tokens that follows from the terms of a call."""
    factor = Decimal(1)
    if usage.service_tier == "batch":
        factor *= BATCH
    if usage.service_tier == "priority":
        factor *= PRIORITY.get(name.partition(":")[0], Decimal(1))
    if usage.speed == "fast":
        factor *= FAST
    if usage.inference_geo and name not in _ONE_PRICE_IN_ALL_REGIONS:
        factor *= IN_ONE_REGION
    return factor


def _names(name: str, model: str) -> bool:
    """Return whether `model` is the model of that name, with or without its release."""
    return model.startswith(name) and _RELEASE.fullmatch(model[len(name) :]) is not None


def _overridden(model: object, given: object, listed: Price | None) -> Price:
    """Return a model's price from a file, completed from the listed one."""
    if not isinstance(model, str) or not model:
        raise UsageError(f"prices: {_shown(model)} is not the name of a model")
    if not isinstance(given, Mapping):
        raise UsageError(
            f"prices: model {model!r} is {_shown(given)}, not a mapping",
            hint=f"its fields are {', '.join(FIELDS)}",
        )
    if unknown := [each for each in given if each not in FIELDS]:
        raise UsageError(
            f"prices: model {model!r} has no field {_shown(unknown[0])}",
            hint=f"its fields are {', '.join(FIELDS)}",
        )
    values = {} if listed is None else {name: getattr(listed, name) for name in FIELDS}
    values |= {name: _dollars(model, name, value) for name, value in given.items()}
    if missing := [name for name in ("input", "output") if name not in values]:
        raise UsageError(
            f"prices: model {model!r} has no {missing[0]}",
            hint="a model that is not in the list needs input and output at least",
        )
    unlisted = dict.fromkeys(FIELDS, values["input"]) | {"web_search": WEB_SEARCH_USD}
    return Price(**(unlisted | values))


def _dollars(model: str, name: str, value: object) -> Decimal:
    dollars = Decimal("NaN")
    if isinstance(value, int | float | str | Decimal) and not isinstance(value, bool):
        # Through text: 0.1 means a tenth, not the nearest binary fraction.
        with suppress(InvalidOperation):
            dollars = Decimal(str(value))
    if not (dollars.is_finite() and 0 <= dollars <= PRICE_MAX):
        raise UsageError(
            f"prices: model {model!r}: {name} is {_shown(value)}, not a price",
            hint=f"give US dollars per {_priced(name)}, 0 to {PRICE_MAX:,}",
        )
    return dollars


def _priced(name: str) -> str:
    return "thousand searches" if name == "web_search" else "million tokens"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
