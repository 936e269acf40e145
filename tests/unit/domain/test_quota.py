"""Quotas: names, text, syntax, and the amount that a call takes."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.quota import Period, Quota

MAIL = Quota.parse("send_mail", "20/hour")
PAY = Quota.parse("pay", "500 EUR/day", argument="amount")


@pytest.mark.parametrize(
    "tool, limit, argument, name, words",
    [
        ("send_mail", "20/hour", None, "send_mail:calls:hour", "20 calls an hour"),
        ("send_mail", "1 call/day", None, "send_mail:calls:day", "1 call a day"),
        ("send_mail", "20_000 calls / day", None, "send_mail:calls:day", "20,000 calls a day"),
        ("pay", "500 EUR/day", "amount", "pay:amount:day", "500 EUR a day by amount"),
        ("pay", "99.50 EUR/hour", "a.b", "pay:a.b:hour", "99.5 EUR an hour by a.b"),
        ("pay", "0.00000001/day", "amount", "pay:amount:day", "0.00000001 a day by amount"),
        ("pay", "0/day", "amount", "pay:amount:day", "0 a day by amount"),
        ("pay", "1000/day", "amount", "pay:amount:day", "1,000 a day by amount"),
    ],
)
def test_a_quota_as_people_write_and_read_it(
    tool: str, limit: str, argument: str | None, name: str, words: str
) -> None:
    quota = Quota.parse(tool, limit, argument=argument)
    assert quota.name == name
    assert quota.words == words


@pytest.mark.parametrize(
    "tool, limit, argument, output",
    [
        ("a b", "1/day", None, "'a b' is not the name of a tool"),
        ("a:b", "1/day", None, "'a:b' is not the name of a tool"),
        ("a", "1/week", None, "'1/week' is not a limit"),
        ("a", "-1/day", None, "'-1/day' is not a limit"),
        ("a", "nan/day", None, "'nan/day' is not a limit"),
        ("a", "1e3/day", "x", "'1e3/day' is not a limit"),
        ("a", "20k/day", None, "'20k/day' is not a limit"),
        ("a", "20", None, "'20' is not a limit"),
        ("a", "0.000000001/day", "x", "is not a limit"),
        ("a", "٢٠/hour", None, "is not a limit"),
        ("a", "20 EUR/day", None, "counts calls, which are not measured in EUR"),
        ("a", "1.5/day", None, "1.5 is not a whole number of calls"),
        ("a", "999999999999/day", "x", "is more than 100,000,000,000"),
        ("a", "1/day", "calls", "'calls' is not an argument that can be added up"),
        ("a", "1/day", "x..y", "'x..y' is not an argument"),
        ("a", "1/day", "x:y", "'x:y' is not an argument"),
        ("a", "1/day", "", "'' is not an argument"),
        ("a", "1/day", "x" * 201, "is not an argument"),
        ("a" * 150, "1/day", "x" * 150, "is too long"),
    ],
)
def test_invalid_quota_is_refused_with_a_reason(
    tool: str, limit: str, argument: str | None, output: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Quota.parse(tool, limit, argument=argument)
    assert output in caught.value.message


def test_a_call_takes_one_call() -> None:
    assert MAIL.amount({"amount": "much"}) == 1


@pytest.mark.parametrize(
    "value, taken", [(0, "0"), (500, "500"), (12.1, "12.1"), (0.1, "0.1"), (1e-7, "1E-7")]
)
def test_an_argument_is_taken_as_it_is_written(value: float, taken: str) -> None:
    assert PAY.amount({"amount": value}) == Decimal(taken)


def test_an_argument_may_be_nested() -> None:
    quota = Quota(tool="pay", argument="order.total", period=Period.DAY, limit=Decimal(9))
    assert quota.amount({"order": {"total": 3}}) == 3


@pytest.mark.parametrize(
    "arguments, output",
    [
        ({}, "amount is missing, which is no amount"),
        ({"amount": None}, "amount is None, which is no amount"),
        ({"amount": "12"}, "amount is '12', which is no amount"),
        ({"amount": True}, "amount is True, which is no amount"),
        ({"amount": -1}, "amount is -1, which is no amount"),
        ({"amount": -0.01}, "amount is -0.01, which is no amount"),
        ({"amount": float("nan")}, "amount is nan, which is no amount"),
        ({"amount": float("inf")}, "amount is inf, which is no amount"),
        ({"amount": [1]}, "amount is [1], which is no amount"),
        ({"amount": 500.01}, "one call of 500.01 EUR is more than all of it"),
    ],
)
def test_invalid_amount_is_refused(arguments: dict[str, Any], output: str) -> None:
    with pytest.raises(RejectedError) as caught:
        PAY.amount(arguments)
    assert "tool 'pay' is limited to 500 EUR a day by amount" in caught.value.message
    assert output in caught.value.message


@given(st.integers(0, 500) | st.floats(0, 500))
def test_every_amount_within_the_limit_is_taken_exactly(value: float) -> None:
    assert PAY.amount({"amount": value}) == Decimal(str(value))


@given(st.decimals(0, 10**9, places=2))
def test_quota_text_shows_the_whole_amount(amount: Decimal) -> None:
    figure = PAY.worded(amount).removesuffix(" EUR").replace(",", "")
    assert Decimal(figure) == amount
