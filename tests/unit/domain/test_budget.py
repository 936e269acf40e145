"""Names of budgets, and the most that a call may take."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.budget import Budget, Period, Scope, Unit, estimate_of, worded
from cortex.domain.errors import UsageError
from cortex.domain.model import ModelRequest
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from tests.support.records.rows import new_id

subjects = st.text(min_size=1, max_size=100)
parts = st.tuples(
    st.sampled_from([Scope.AGENT, Scope.TENANT]),
    subjects,
    st.sampled_from(Unit),
    st.sampled_from(Period),
)


def a_request(
    text: str, *, model: str = "claude-sonnet-4-6", max_tokens: int = 1000
) -> ModelRequest:
    messages = [{"role": "user", "content": text}]
    return ModelRequest(model=model, messages=messages, max_tokens=max_tokens)


@given(parts)
def test_a_name_names_one_budget(given: tuple[Scope, str, Unit, Period]) -> None:
    scope, subject, unit, period = given
    budget = Budget(scope=scope, subject=subject, unit=unit, period=period)
    assert Budget.parse(budget.name) == budget


def test_a_jobs_budget_has_its_id_in_its_name() -> None:
    name = f"job:{new_id()}:tokens:run"
    assert Budget.parse(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "agent",
        "agent:researcher",
        "agent:researcher:usd",
        "agent::usd:day",
        "team:a:usd:day",
        "agent:researcher:eur:day",
        "agent:researcher:usd:week",
        "agent:researcher:usd:day ",
        "job:9f3a1c:usd:run",
        f"agent:{'x' * 101}:usd:day",
    ],
)
def test_invalid_budget_name_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a budget") as refused:
        Budget.parse(name)
    assert repr(name) in refused.value.message


@pytest.mark.parametrize("text", ["word " * 2000, "日本語の文章です。" * 500, "if x: y()\n" * 800])
def test_the_room_is_the_worst_case_and_a_lost_call_is_booked_likely(text: str) -> None:
    request = a_request(text)
    estimate = estimate_of(request, LIST_PRICES)
    size = len(text.encode())
    assert estimate.tokens >= size / 2 + 1000
    assert estimate.cost_usd is not None
    assert estimate.input_usd is not None
    worst = Usage(cache_write_tokens=size // 2, output_tokens=1000)
    assert estimate.cost_usd >= (LIST_PRICES.cost(request.model, worst) or 0) > 0
    assert size / 4 < estimate.input_tokens < size / 3
    assert estimate.input_usd < estimate.cost_usd / 2


def test_a_longer_answer_needs_more_room() -> None:
    short, long = (estimate_of(a_request("x", max_tokens=n), LIST_PRICES) for n in (10, 64_000))
    assert 63_990 <= long.tokens - short.tokens <= 63_995  # the figure itself is in the request
    assert long.cost_usd is not None
    assert long.cost_usd > Decimal("0.9")  # 64,000 tokens at $15 a million


def test_an_image_needs_the_room_of_an_image_and_not_of_its_bytes() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    image = {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [image]}
    messages = [{"role": "user", "content": [image]}, {"role": "user", "content": [result]}]
    request = ModelRequest(model="claude-sonnet-4-6", messages=messages, max_tokens=10)
    estimate = estimate_of(request, LIST_PRICES)
    assert 10_000 < estimate.tokens < 11_000
    assert 3_200 < estimate.input_tokens < 3_500


def test_a_write_for_an_hour_needs_more_room() -> None:
    def room(**control: str) -> Decimal:
        block = {"type": "text", "text": "x" * 10_000, "cache_control": control}
        messages = [{"role": "user", "content": [block]}]
        request = ModelRequest(model="claude-sonnet-4-6", messages=messages, max_tokens=1)
        return estimate_of(request, LIST_PRICES).cost_usd or Decimal(0)

    assert room(type="ephemeral", ttl="1h") > Decimal("1.5") * room(type="ephemeral", ttl="5m")


def test_without_a_price_there_are_only_tokens() -> None:
    estimate = estimate_of(a_request("x", model="local-llama"), LIST_PRICES)
    assert (estimate.cost_usd, estimate.input_usd) == (None, None)
    assert estimate.tokens > 1000


@pytest.mark.parametrize(
    "amount, unit, words",
    [
        ("1", Unit.USD, "$1.00"),
        ("1.0234", Unit.USD, "$1.02"),
        ("0.5", Unit.USD, "$0.50"),
        ("0.0031", Unit.USD, "$0.0031"),
        ("1234.5", Unit.USD, "$1,234.50"),
        ("0", Unit.USD, "$0.00"),
        ("12000", Unit.TOKENS, "12,000 tokens"),
    ],
)
def test_amounts_in_words(amount: str, unit: Unit, words: str) -> None:
    assert worded(Decimal(amount), unit) == words
