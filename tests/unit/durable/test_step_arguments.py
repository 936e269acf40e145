"""The identity of a step: the values it is given, by name, and nothing else."""

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from attrs import frozen

from cortex.domain.effect import Invocation
from cortex.domain.errors import DivergedError
from cortex.durable.codec import INPUT_BYTES_MAX, input_of
from cortex.durable.divergence import CHARS_MAX, difference
from cortex.durable.step_arguments import given_to
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context


async def add(number: int, factor: int = 2) -> None: ...
async def moved_and_renamed(number: int, *, factor: int = 3, note: str = "") -> None: ...
async def each(first: int, *urls: str, **options: int) -> None: ...
async def either(name: int, /, **others: int) -> None: ...
async def pay(invocation: Invocation, number: int) -> int:
    raise AssertionError((invocation, number))


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    return wrapper


class Api:
    async def add(self, number: int, factor: int = 2) -> None: ...
    async def each(self, *urls: str) -> None: ...
    @classmethod
    async def made(cls, number: int) -> None: ...
    @staticmethod
    async def held(number: int) -> None: ...
    def __call__(self, number: int) -> None: ...


@frozen
class Order:
    number: int


CLIENT: Any = object()
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    # by position or by name
    (add, (1,), {}, {"number": 1}),
    (add, (), {"number": 1}, {"number": 1}),
    (add, (1, 5), {}, {"number": 1, "factor": 5}),
    (add, (1,), {"factor": 5}, {"number": 1, "factor": 5}),
    # a default counts only if it is given
    (add, (1, 2), {}, {"number": 1, "factor": 2}),
    (moved_and_renamed, (1,), {}, {"number": 1}),
    # the rest
    (each, (1, "a", "b"), {"tries": 3}, {"first": 1, "urls": ["a", "b"], "tries": 3}),
    (each, (1,), {}, {"first": 1}),
    (either, (1,), {"name": 2}, {"name": 1, "**name": 2}),
    # decorated functions, methods, callables, lambdas, classes, functions in C
    (kept(add), (1,), {}, {"number": 1}),
    (Api().add, (1,), {"factor": 5}, {"number": 1, "factor": 5}),
    (Api().each, ("a",), {}, {"urls": ["a"]}),
    (Api.made, (1,), {}, {"number": 1}),
    (Api.held, (1,), {}, {"number": 1}),
    (Api(), (1,), {}, {"number": 1}),
    (kept(Api().add), (1,), {}, {"number": 1}),
    (lambda: add(7), (), {}, {}),
    (lambda number, held=7: add(number, held), (1,), {}, {"number": 1}),
    (Order, (1,), {}, {"number": 1}),
    (max, (1, 2), {}, {"argument 1": 1, "argument 2": 2}),
    (math.isqrt, (9,), {}, {"n": 9}),
    # partials: what they hold counts, but for what is no JSON
    (functools.partial(add, 1), (), {}, {"number": 1}),
    (functools.partial(add, 1), (5,), {}, {"number": 1, "factor": 5}),
    (functools.partial(add, factor=5), (1,), {}, {"number": 1, "factor": 5}),
    (functools.partial(add, factor=5), (1,), {"factor": 6}, {"number": 1, "factor": 6}),
    (functools.partial(functools.partial(add, 1), 5), (), {}, {"number": 1, "factor": 5}),
    (functools.partial(Api.add, Api(), 1), (), {}, {"number": 1}),
    (functools.partial(add, CLIENT, CLIENT), (), {}, {}),
    (functools.partial(Api.each, Api(), "a"), (), {}, {"urls": ["a"]}),
    # calls that do not fit
    (add, (1, 2, 3), {}, {"number": 1, "factor": 2, "argument 3": 3}),
    (add, (1,), {"number": 2}, {"number": 1, "**number": 2}),
    (add, (), {}, {}),
]


@pytest.mark.parametrize("function, args, kwargs, expected", CALLS)
def test_values_are_bound_to_names(
    function: Callable[..., Any], args: Any, kwargs: Any, expected: Any
) -> None:
    for _ in range(2):  # the second one from what is remembered
        assert given_to(function, args, dict(kwargs)) == expected


def test_an_invocation_does_not_count_as_a_given_value() -> None:
    assert given_to(pay, (1,), {}, skipped=1) == {"number": 1}
    assert given_to(kept(pay), (1,), {}, skipped=1) == {"number": 1}
    assert given_to(functools.partial(pay), (1,), {}, skipped=1) == {"number": 1}


async def test_an_effect_may_get_an_invocation_later() -> None:
    async def plain(number: int) -> int:
        return number

    record, claim = Record(), a_claim()
    effect = a_context(record, claim, gateway=LedgerDesk()).effect
    assert await effect("pay", plain, 5) == 5
    assert await a_context(record, claim, gateway=LedgerDesk()).effect("pay", pay, number=5) == 5


Ask = Callable[[Any], Awaitable[Any]]
CHANGES: list[tuple[Ask, Ask, str]] = [
    (
        lambda ctx: ctx.step("a", add, 1),
        lambda ctx: ctx.step("a", add, 1, 3),
        "factor: nothing → 3",
    ),
    (
        lambda ctx: ctx.step("a", each, 1, "x", "y"),
        lambda ctx: ctx.step("a", each, 1, "x", "z"),
        'urls[1]: "y" → "z"',
    ),
    (
        lambda ctx: ctx.step("a", add, Order(1)),
        lambda ctx: ctx.step("a", add, Order(2)),
        "number.number: 1 → 2",
    ),
    (
        lambda ctx: ctx.tool("a", "eye", {"at": "it"}),
        lambda ctx: ctx.tool("a", "ear", {"at": "her"}),
        'arguments.at: "it" → "her", tool: "eye" → "ear"',
    ),
    (
        lambda ctx: ctx.publish("orders.paid", {"number": 1}, name="a"),
        lambda ctx: ctx.publish("orders.paid", {"number": 2}, name="a"),
        "payload.number: 1 → 2",
    ),
    (
        lambda ctx: ctx.llm("a", model="m", messages=[{"role": "user", "content": "b"}]),
        lambda ctx: ctx.llm("a", model="n", messages=[{"role": "user", "content": "b"}]),
        'model: "m" → "n"',
    ),
]


@pytest.mark.parametrize("before, after, message", CHANGES)
async def test_a_changed_value_is_shown_by_its_name(before: Ask, after: Ask, message: str) -> None:
    record = Record()
    await before(a_context(record))
    with pytest.raises(Exception, match="step 'a' has another input now") as caught:
        await after(a_context(record))
    assert message in str(caught.value)


async def test_a_gathered_step_is_named_like_any_other() -> None:
    record = Record()

    async def run(ctx: Any, number: int) -> None:
        await ctx.gather(ctx.step("a", add, 1), ctx.step("b", add, number=number))

    await run(a_context(record), 1)
    with pytest.raises(Exception, match=r"step 'b' has another input now.*: number: 1 → 2"):
        await run(a_context(record), 2)


# --- renamed parameters


async def load(number: int, note: str = "", *, token: str = "") -> str:
    return f"{number} {note} {token}"


async def load_renamed(order_number: int, title: str = "", *, token: str = "") -> str:
    raise AssertionError("a recorded step was run again")


async def load_swapped(note: int, number: str = "") -> None: ...
async def load_both(first: int, second: int) -> None: ...
async def load_both_renamed(third: int, fourth: int) -> None: ...


@pytest.mark.parametrize("values", [(5,), (5, "a"), (5, "x" * 9_000), (2.5, "é\n")])
async def test_a_renamed_parameter_makes_no_other_step(values: Any) -> None:
    record = Record()
    before = a_context(record, gateway=LedgerDesk())
    await before.step("a", load, *values, token="t")
    await before.effect("b", load, *values)
    again = a_context(record, gateway=LedgerDesk())
    result = await again.step("a", load_renamed, *values, token="t")
    assert result == await load(*values, token="t")
    assert await again.effect("b", load_renamed, *values) == await load(*values)


@pytest.mark.parametrize(
    "function, args, other, others",
    [
        (load, (5,), load_renamed, (6,)),
        (load, (5,), load_renamed, (5.0,)),
        (load, (1,), load_renamed, (True,)),
        (load, (5, "a"), load_swapped, (5, "a")),
        (load, (5, "x" * 9_000), load_renamed, (5, "x" * 8_999 + "y")),
        (load, (5,), load_renamed, (5, "")),
        # which of two equal values got which name is open
        (load_both, (1, 1), load_both_renamed, (1, 1)),
    ],
)
async def test_other_values_under_new_names_make_another_step(
    function: Any, args: Any, other: Any, others: Any
) -> None:
    record = Record()
    await a_context(record).step("a", function, *args)
    with pytest.raises(DivergedError, match="step 'a' has another input now"):
        await a_context(record).step("a", other, *others)


# --- long inputs


def kept_of(**given: Any) -> str:
    return input_of(given, what="input").kept


LONG = "x" * 3_000


@pytest.mark.parametrize(
    "before, after, message",
    [
        (
            {"text": LONG * 9 + "a", "number": 1},
            {"text": LONG * 9 + "b", "number": 1},
            "text at character",
        ),
        ({"text": "a" + LONG * 9}, {"text": "b" + LONG * 9}, 'text: "axx'),
        ({"text": LONG * 9, "number": 1}, {"text": LONG * 9, "number": 2}, "number: 1 → 2"),
        (
            {"text": LONG, "files": ["a" * 5_000]},
            {"text": LONG, "files": []},
            "files: ",
        ),
        ({"text": LONG, "more": LONG}, {"text": LONG}, 'more: "xxx'),
    ],
)
def test_a_difference_in_a_long_input_names_the_value(
    before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    old, new = kept_of(**before), kept_of(**after)
    assert max(len(old.encode()), len(new.encode())) <= INPUT_BYTES_MAX
    shown = difference(old, new)
    assert shown.startswith(message), shown
    assert " more" not in shown
    assert len(shown) < 3 * CHARS_MAX


def test_very_many_values_are_cut_as_a_whole() -> None:
    many = {f"name {n}": n for n in range(1_000)}
    old, new = kept_of(**many), kept_of(**many | {"name 1": 0})
    assert len(old.encode()) <= INPUT_BYTES_MAX
    assert difference(old, new).startswith("input at character")


@pytest.mark.parametrize("text", ['"' * 9_000, "é" * 9_000, "\n" * 9_000, "😀" * 9_000])
def test_a_cut_value_keeps_its_beginning_within_the_bound(text: str) -> None:
    shown = kept_of(text=text)
    assert INPUT_BYTES_MAX / 2 < len(shown.encode()) <= INPUT_BYTES_MAX
    assert "bytes, digest" in shown
