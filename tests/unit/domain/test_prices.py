"""Costs of calls, known and unknown."""

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import attrs
import pytest
from genai_prices.data import providers
from genai_prices.types import ConditionalPrice, ModelPrice, TieredPrices

from cortex.domain.errors import UsageError
from cortex.domain.prices import LIST_PRICES, LONG_PROMPT_PRICES, PRICES, Price, PriceTable
from cortex.domain.usage import Usage

M = 1_000_000
USAGE = Usage(
    input_tokens=1_000, output_tokens=200, cache_read_tokens=50_000, cache_write_tokens=400
)


def test_each_kind_of_token_has_its_price() -> None:
    expected = Decimal("0.003") + Decimal("0.003") + Decimal("0.015") + Decimal("0.0015")
    assert LIST_PRICES.cost("claude-sonnet-4-6", USAGE) == expected


@pytest.mark.parametrize(
    "model, same_as",
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-sonnet-5-latest", "claude-sonnet-5"),
        ("openai:gpt-5.2-2025-12-11", "openai:gpt-5.2"),
    ],
)
def test_dated_release_costs_the_same_as_its_model(model: str, same_as: str) -> None:
    assert LIST_PRICES.cost(model, USAGE) == LIST_PRICES.cost(same_as, USAGE)


def test_a_longer_name_is_another_model() -> None:
    assert LIST_PRICES.cost("claude-opus-5-5", USAGE) != LIST_PRICES.cost("claude-opus-5", USAGE)


@pytest.mark.parametrize(
    "model", ["gpt-9", "claude-opus-5-9", "claude-opus", "", "claude-opus-55", "gpt-5.2"]
)
def test_unknown_model_has_no_price(model: str) -> None:
    assert LIST_PRICES.cost(model, USAGE) is None


def test_a_long_prompt_may_cost_more() -> None:
    short = Usage(input_tokens=40_000, cache_read_tokens=60_000)
    assert LIST_PRICES.cost("claude-haiku-5-5", short) == Decimal("0.0046")
    assert LIST_PRICES.cost("claude-haiku-5-5", short + Usage(input_tokens=1)) == Decimal(
        "0.0230005"
    )


def test_price_table_is_ordered() -> None:
    prices = [*PRICES.values(), *(long.price for long in LONG_PROMPT_PRICES.values())]
    for price in prices:
        assert 0 < price.cache_read < price.input <= price.cache_write < price.cache_write_1h
        assert price.cache_write_1h < price.output
    assert LONG_PROMPT_PRICES.keys() <= PRICES.keys()


def test_usage_adds_up_and_survives_json() -> None:
    assert USAGE + Usage() == USAGE
    assert (USAGE + USAGE).total_tokens == 2 * USAGE.total_tokens
    assert USAGE.prompt_tokens == 51_400
    assert Usage.from_json(USAGE.to_json()) == USAGE
    special = attrs.evolve(
        USAGE, cache_write_1h_tokens=3, web_searches=2, service_tier="batch", inference_geo="us"
    )
    assert Usage.from_json(special.to_json()) == special
    assert "web_searches" not in USAGE.to_json()
    assert (special + special).web_searches == 4
    assert special.total_tokens == USAGE.total_tokens  # those for an hour are counted once
    with pytest.raises(TypeError):
        Usage.from_json({"tokens": 1})


# --- the terms of a call


@pytest.mark.parametrize(
    "usage, dollars",
    [
        (Usage(cache_write_tokens=M), "2.50"),
        (Usage(cache_write_tokens=M, cache_write_1h_tokens=M), "4"),
        (Usage(cache_write_tokens=2 * M, cache_write_1h_tokens=M), "6.50"),
        (Usage(web_searches=1000), "10"),
        (Usage(input_tokens=M, service_tier="batch"), "1"),
        (Usage(input_tokens=M, service_tier="priority"), "2"),
        (Usage(input_tokens=M, inference_geo="us"), "2.2"),
        (Usage(output_tokens=M, speed="fast"), "20"),
        (Usage(input_tokens=M, web_searches=100, service_tier="batch", inference_geo="us"), "2.1"),
    ],
)
def test_the_terms_of_a_call_change_its_price(usage: Usage, dollars: str) -> None:
    assert LIST_PRICES.cost("claude-sonnet-5", usage) == Decimal(dollars)


@pytest.mark.parametrize("model", ["openai:gpt-5.5", "openai:gpt-5-mini", "google:gemini-2.5-pro"])
def test_the_priority_tier_is_never_booked_below_its_price(model: str) -> None:
    """OpenAI's pricing page: 12.50, 0.45; Google's: at most twice the price."""
    factor = Decimal("2.5") if model.startswith("openai:") else 2
    usual = LIST_PRICES.cost(model, Usage(input_tokens=1000, output_tokens=10))
    tier = Usage(input_tokens=1000, output_tokens=10, service_tier="priority")
    assert usual is not None
    assert LIST_PRICES.cost(model, tier) == factor * usual


def test_an_older_model_costs_the_same_in_every_region() -> None:
    usage = Usage(input_tokens=M, inference_geo="us")
    assert LIST_PRICES.cost("claude-haiku-4-5-20251001", usage) == 1


@pytest.mark.parametrize("vendor", ["anthropic", "openai", "google"])
def test_the_price_list_agrees_with_a_maintained_one(vendor: str) -> None:
    prefix = "" if vendor == "anthropic" else f"{vendor}:"
    provider = next(each for each in providers if each.id == vendor)
    compared = set()
    for model in provider.models:
        name = LIST_PRICES.name_of(prefix + model.id.removesuffix("-latest"))
        if name is None:
            continue
        compared.add(name)
        for usage, theirs in _each_kind(model.prices):
            assert LIST_PRICES.cost(name, usage) == theirs, (name, usage)
        for variant in model.price_variants or ():
            tier = variant.when.get("service_tier")
            if vendor == "google" or tier == "fast":
                continue  # the list has only Google's batches for these models
            for usage, theirs in _each_kind(variant.prices):
                if usage.total_tokens:  # searches have one price on all terms
                    terms: Any = _terms(variant.when)
                    special = attrs.evolve(usage, **terms)
                    cost = LIST_PRICES.cost(name, special)
                    assert cost is not None
                    if tier == "priority":
                        assert cost >= theirs or vendor == "anthropic", (name, special)
                        continue
                    is_rounded = theirs * Decimal("0.95") <= cost <= theirs * Decimal("1.05")
                    is_right = is_rounded if vendor == "openai" else cost == theirs
                    assert is_right, (name, special)
    unlisted = {"claude-mythos-5-1", "claude-mythos-5", "claude-opus-4", "claude-sonnet-4"}
    ours = {each for each in PRICES if each.startswith(prefix) and (prefix or ":" not in each)}
    assert compared == ours - unlisted - {"scripted"}


KINDS: dict[str, Callable[[int], Usage]] = {
    "input_mtok": lambda n: Usage(input_tokens=n),
    "output_mtok": lambda n: Usage(output_tokens=n),
    "cache_read_mtok": lambda n: Usage(cache_read_tokens=n),
    "cache_write_mtok": lambda n: Usage(cache_write_tokens=n),
    "cache_write_1h_mtok": lambda n: Usage(cache_write_tokens=n, cache_write_1h_tokens=n),
}


def _terms(when: Mapping[str, str]) -> dict[str, str]:
    """The terms of a variant, as usage reports them. The flex tier costs as much as a batch."""
    if "speed" in when:
        return {"speed": "fast"}
    tier = when.get("service_tier", "batch")
    return {"service_tier": {"flex": "batch", "default": ""}.get(tier, tier)}


def _each_kind(
    prices: ModelPrice | list[ConditionalPrice],
) -> Iterator[tuple[Usage, Decimal]]:
    """Yield a usage of each kind with its cost today, for a short prompt and for a long one."""
    price = prices[-1].prices if isinstance(prices, list) else prices
    for name, usage in KINDS.items():
        listed = getattr(price, name)
        if listed is None:  # that provider, or that variant, has no such tokens
            continue
        for tokens in (1000, 900_000):
            dollars = listed
            if isinstance(listed, TieredPrices):
                prompt = usage(tokens).prompt_tokens
                over = [tier.price for tier in listed.tiers if prompt > tier.start]
                dollars = over[-1] if over else listed.base
            yield usage(tokens), dollars * tokens / M
    if isinstance(price.web_searches_kcount, Decimal):
        yield Usage(web_searches=1), price.web_searches_kcount / 1000


# --- a person's own prices


def test_custom_model_gets_its_configured_price() -> None:
    table = LIST_PRICES.with_overrides({"local-llama": {"input": 0.1, "output": "0.4"}})
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000, output_tokens=1_000_000)
    assert table.cost("local-llama", usage) == Decimal("0.6")
    assert table.cost("claude-opus-5", USAGE) == LIST_PRICES.cost("claude-opus-5", USAGE)
    special = Usage(cache_write_tokens=M, cache_write_1h_tokens=M, web_searches=1000)
    assert table.cost("local-llama", special) == Decimal("10.1")
    assert LIST_PRICES.cost("local-llama", usage) is None


def test_override_of_a_known_model_changes_only_the_given_prices() -> None:
    table = LIST_PRICES.with_overrides({"claude-haiku-5-5": {"output": 7}})
    million = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert table.cost("claude-haiku-5-5", million) == Decimal("7.1")  # no long-prompt price of ours
    assert table.cost("claude-haiku-5-5", Usage(cache_read_tokens=10**6)) == Decimal("0.01")


def test_price_of_a_release_overrides_its_models() -> None:
    name = "claude-opus-5-20260101"
    table = LIST_PRICES.with_overrides({name: {"input": 1, "output": 1}})
    assert table.cost(name, Usage(input_tokens=10**6)) == 1
    assert table.cost("claude-opus-5-20260102", Usage(input_tokens=10**6)) == 5


@pytest.mark.parametrize(
    "overrides, message",
    [
        ([], "prices: [] is not a mapping of models to prices"),
        ({7: {}}, "prices: 7 is not the name of a model"),
        ({"m": 3}, "prices: model 'm' is 3, not a mapping"),
        ({"m": {"inputs": 3}}, "prices: model 'm' has no field 'inputs'"),
        ({"m": {"input": 3}}, "prices: model 'm' has no output"),
        ({"m": {"input": -1}}, "prices: model 'm': input is -1, not a price"),
        ({"m": {"input": True}}, "prices: model 'm': input is True, not a price"),
        ({"m": {"input": None}}, "prices: model 'm': input is None, not a price"),
        ({"m": {"input": "cheap"}}, "prices: model 'm': input is 'cheap', not a price"),
        ({"m": {"input": float("nan")}}, "prices: model 'm': input is nan, not a price"),
        ({"m": {"input": float("inf")}}, "prices: model 'm': input is inf, not a price"),
        ({"m": {"input": 2_000_000}}, "prices: model 'm': input is 2000000, not a price"),
    ],
)
def test_a_wrong_price_names_model_field_and_value(overrides: object, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        LIST_PRICES.with_overrides(overrides)
    assert refused.value.message == message


def test_equal_tables_are_equal_text() -> None:
    ours = LIST_PRICES.with_overrides({"m": {"input": "3.10", "output": 100}})
    theirs = PriceTable(
        {"m": Price(*map(Decimal, ("3.1", "1E+2", "3.100", "3.1", "3.1"))), **PRICES},
        LONG_PROMPT_PRICES,
    )
    assert json.dumps(ours.to_json()) == json.dumps(theirs.to_json())
    assert ours.to_json()["prices"]["m"]["output"] == "100"
    restored = PriceTable.from_json(json.loads(json.dumps(ours.to_json())))
    for model in (*PRICES, "m"):
        assert restored.cost(model, USAGE) == ours.cost(model, USAGE)
    long = Usage(input_tokens=200_000)
    older = dict.fromkeys(("input", "output", "cache_read", "cache_write"), "3")
    assert Price.from_json(older).cost(attrs.evolve(USAGE, cache_write_1h_tokens=400)) > 0
    assert restored.cost("claude-haiku-5-5", long) == LIST_PRICES.cost("claude-haiku-5-5", long)
