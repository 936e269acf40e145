"""What a call costs, and when that is not known."""

from decimal import Decimal

import pytest

from cortex.domain.prices import LONG_PROMPT_PRICES, PRICES, cost
from cortex.domain.usage import Usage

USAGE = Usage(
    input_tokens=1_000, output_tokens=200, cache_read_tokens=50_000, cache_write_tokens=400
)


def test_each_kind_of_token_has_its_price() -> None:
    expected = Decimal("0.003") + Decimal("0.003") + Decimal("0.015") + Decimal("0.0015")
    assert cost("claude-sonnet-4-6", USAGE) == expected


@pytest.mark.parametrize(
    "model, same_as",
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-sonnet-5-latest", "claude-sonnet-5"),
    ],
)
def test_a_release_costs_what_its_model_costs(model: str, same_as: str) -> None:
    assert cost(model, USAGE) == cost(same_as, USAGE)


def test_a_longer_name_is_another_model() -> None:
    assert cost("claude-opus-5-5", USAGE) != cost("claude-opus-5", USAGE)


@pytest.mark.parametrize("model", ["gpt-9", "claude-opus-5-9", "claude-opus", "", "claude-opus-55"])
def test_an_unknown_model_has_no_price_rather_than_none(model: str) -> None:
    assert cost(model, USAGE) is None


def test_a_long_prompt_may_cost_more() -> None:
    short = Usage(input_tokens=40_000, cache_read_tokens=60_000)
    assert cost("claude-haiku-5-5", short) == Decimal("0.0046")
    assert cost("claude-haiku-5-5", short + Usage(input_tokens=1)) == Decimal("0.0230005")


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
