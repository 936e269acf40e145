"""What a call costs, and when that is not known."""

import json
from decimal import Decimal

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.model import Usage
from cortex.domain.prices import LIST_PRICES, LONG_PROMPT_PRICES, PRICES, Price, PriceTable

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
    ],
)
def test_a_release_costs_what_its_model_costs(model: str, same_as: str) -> None:
    assert LIST_PRICES.cost(model, USAGE) == LIST_PRICES.cost(same_as, USAGE)


def test_a_longer_name_is_another_model() -> None:
    assert LIST_PRICES.cost("claude-opus-5-5", USAGE) != LIST_PRICES.cost("claude-opus-5", USAGE)


@pytest.mark.parametrize("model", ["gpt-9", "claude-opus-5-9", "claude-opus", "", "claude-opus-55"])
def test_an_unknown_model_has_no_price_rather_than_none(model: str) -> None:
    assert LIST_PRICES.cost(model, USAGE) is None


def test_a_long_prompt_may_cost_more() -> None:
    short = Usage(input_tokens=40_000, cache_read_tokens=60_000)
    assert LIST_PRICES.cost("claude-haiku-5-5", short) == Decimal("0.0046")
    assert LIST_PRICES.cost("claude-haiku-5-5", short + Usage(input_tokens=1)) == Decimal(
        "0.0230005"
    )


def test_the_table_makes_sense() -> None:
    prices = [*PRICES.values(), *(long.price for long in LONG_PROMPT_PRICES.values())]
    for price in prices:
        assert 0 < price.cache_read < price.input < price.cache_write < price.output
    assert LONG_PROMPT_PRICES.keys() <= PRICES.keys()


def test_usage_adds_up_and_survives_json() -> None:
    assert USAGE + Usage() == USAGE
    assert (USAGE + USAGE).total_tokens == 2 * USAGE.total_tokens
    assert USAGE.prompt_tokens == 51_400
    assert Usage.from_json(USAGE.to_json()) == USAGE
    with pytest.raises(TypeError):
        Usage.from_json({"tokens": 1})


# --- a person's own prices


def test_a_model_of_ones_own_gets_a_price() -> None:
    table = LIST_PRICES.with_overrides({"local-llama": {"input": 0.1, "output": "0.4"}})
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000, output_tokens=1_000_000)
    assert table.cost("local-llama", usage) == Decimal("0.6")
    assert table.cost("claude-opus-5", USAGE) == LIST_PRICES.cost("claude-opus-5", USAGE)
    assert LIST_PRICES.cost("local-llama", usage) is None


def test_of_a_known_model_only_what_is_given_changes() -> None:
    table = LIST_PRICES.with_overrides({"claude-haiku-5-5": {"output": 7}})
    million = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert table.cost("claude-haiku-5-5", million) == Decimal("7.1")  # no long-prompt price of ours
    assert table.cost("claude-haiku-5-5", Usage(cache_read_tokens=10**6)) == Decimal("0.01")


def test_a_release_with_a_price_of_its_own_goes_before_its_model() -> None:
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
        {"m": Price(*map(Decimal, ("3.1", "1E+2", "3.100", "3.1"))), **PRICES}, LONG_PROMPT_PRICES
    )
    assert json.dumps(ours.to_json()) == json.dumps(theirs.to_json())
    assert ours.to_json()["prices"]["m"]["output"] == "100"
    restored = PriceTable.from_json(json.loads(json.dumps(ours.to_json())))
    for model in (*PRICES, "m"):
        assert restored.cost(model, USAGE) == ours.cost(model, USAGE)
    long = Usage(input_tokens=200_000)
    assert restored.cost("claude-haiku-5-5", long) == LIST_PRICES.cost("claude-haiku-5-5", long)
