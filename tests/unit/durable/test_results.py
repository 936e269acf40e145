"""Results in the types that functions declare, on the first run and on replay alike."""

import dataclasses
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    MutableMapping,
)
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial, wraps
from typing import (
    Any,
    ClassVar,
    Literal,
    LiteralString,
    NewType,
    NotRequired,
    Self,
    TypedDict,
    TypeGuard,
    TypeVar,
    get_args,
)
from uuid import UUID

import attrs
import pydantic
import pytest

from cortex.agent.tools.tool import tool
from cortex.domain.effect import Applied, Invocation
from cortex.domain.errors import DivergedError, InvalidValueError, UsageError
from cortex.durable.codec import as_json
from cortex.durable.results import result_type
from tests.support.records.factories import LedgerDesk, Record, a_context, run_twice

Value = TypeVar("Value")


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@attrs.frozen
class Item:
    name: str
    price: Decimal
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Place:
    id: UUID
    at: datetime
    items: list[Item]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    shared: ClassVar[complex] = 1j
    by_colour: dict[Colour, Decimal] = dataclasses.field(default_factory=dict)


class Options(TypedDict):
    day: date
    note: NotRequired[str]


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    number: int
    total: Decimal
    placed_at: datetime
    alias: str = pydantic.Field(default="x", alias="givenName")
    parts: "list[Order]" = []


OrderNumber = NewType("OrderNumber", int)
ID = UUID("00000000-0000-0000-0000-00000000002a")
AT = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
ITEM = Item("a", Decimal("1.10"))
ORDER = Order(number=1, total=Decimal("9.90"), placed_at=AT, parts=[])
VALUES: list[tuple[Any, Any]] = [
    (Item, ITEM),
    (Place, Place(ID, AT, [ITEM])),
    (Options, {"day": date(2026, 1, 31)}),
    (Order, ORDER.model_copy(update={"parts": [ORDER]})),
    (Colour, Colour.RED),
    (datetime, AT),
    (Decimal, Decimal("0.1000")),
    (UUID, ID),
    (list[Item], [ITEM, ITEM]),
    (dict[str, Order], {"one": ORDER}),
    (dict[int, list[Decimal]], {7: [Decimal(1)]}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[Size, int], {Size.SMALL: 1}),
    (dict[Literal[1, "one"], int], {1: 1, "one": 2}),
    (dict[bool, str], {True: "yes", False: "no"}),
    (dict[date, int], {date(2026, 1, 31): 1}),
    (Rate, Rate(by_colour={Colour.RED: Decimal("0.10")})),
    (Decimal | int, 5),
    (Decimal | float, 0.5),
    (float | int, 5),
    (Decimal | int, Decimal(5)),
    (Item | None, None),
    (Item | None, ITEM),
    (tuple[int, Item], (1, ITEM)),
    (frozenset[int], frozenset({3, 1, 2})),
    (OrderNumber, OrderNumber(7)),
    (str, "text"),
    (dict[str, Any], {"plain": [1, None]}),
]


def returning(hint: Any, value: Any) -> Callable[[], Awaitable[Any]]:
    async def function() -> Any:
        return value

    function.__annotations__["return"] = hint
    return function


@pytest.mark.parametrize("hint, value", VALUES, ids=[f"{hint} {value!r}" for hint, value in VALUES])
async def test_a_result_has_its_declared_type_on_the_first_run_and_on_replay(
    hint: Any, value: Any
) -> None:
    function = returning(hint, value)
    results = await run_twice(lambda ctx: ctx.step("a", function))
    assert results == [value, value]
    assert [type(each) for each in results] == [type(value)] * 2


@pytest.mark.parametrize("hint, value", VALUES, ids=[f"{hint} {value!r}" for hint, value in VALUES])
async def test_an_effect_returns_its_declared_type_too(hint: Any, value: Any) -> None:
    record, function = Record(), returning(hint, value)
    for _ in range(2):
        ctx = a_context(record, gateway=LedgerDesk())
        result = await ctx.effect("pay", function, idempotent=True)
        assert (type(result), result) == (type(value), value)


def test_a_tool_takes_values_of_its_declared_types() -> None:
    for hint, value in VALUES:

        def echo(value: Any) -> Any:
            """Return the value."""
            return value

        echo.__annotations__ |= {"value": hint, "return": hint}
        if Order in (hint, *get_args(hint)):
            with pytest.raises(UsageError, match="Order contains itself"):
                tool(echo)
            continue
        made = tool(echo)
        parsed: Any = made.parse(as_json({"value": value}, what="input"))
        assert (type(parsed.value), parsed.value) == (type(value), value), hint
        assert made.input_schema["properties"]["value"] != {}, hint


async def test_a_function_without_an_annotation_returns_plain_json() -> None:
    results = await run_twice(lambda ctx: ctx.step("a", lambda: ITEM))
    assert results == [{"name": "a", "price": "1.10", "colour": "red"}] * 2


async def test_a_new_result_of_another_type_is_an_error_and_not_recorded() -> None:
    record = Record()
    with pytest.raises(InvalidValueError, match="output of step 'load'"):
        await a_context(record).step("load", returning(Item, "text"))
    assert record.steps == []


async def test_a_recorded_result_that_the_code_refuses_is_a_divergence_without_its_value() -> None:
    record = Record()
    old = Order(number=4711, total=Decimal(1), placed_at=AT)
    await a_context(record).step("load", returning(Order, old))

    class Stricter(Order):
        customer: str

    with pytest.raises(DivergedError) as caught:
        await a_context(record).step("load", returning(Stricter, old))
    assert caught.value.is_clean
    assert "customer: Field required" in caught.value.message
    assert "'load'" in caught.value.message
    assert "4711" not in caught.value.message


async def test_a_class_may_refuse_a_recorded_result_by_any_error() -> None:
    record, is_closed = Record(), False

    class Bookings(pydantic.BaseModel):
        number: int

        @pydantic.model_validator(mode="after")
        def check(self) -> Self:
            if is_closed:
                raise RuntimeError("4711 is closed")
            return self

    function = returning(Bookings | None, Bookings(number=4711))
    await a_context(record).step("load", function)
    is_closed = True
    with pytest.raises(DivergedError, match="'load'") as caught:
        await a_context(record).step("load", function)
    assert "RuntimeError" in caught.value.message
    assert "4711" not in caught.value.message


@pytest.mark.parametrize(
    "hint",
    [complex, list[bytes], Callable[[], int], dict[str, memoryview], "PurePath", Item | complex],
    ids=str,
)
async def test_a_result_that_json_cannot_give_is_refused_before_the_step_runs(hint: Any) -> None:
    async def function() -> Any:
        raise AssertionError

    function.__annotations__["return"] = hint
    with pytest.raises(UsageError, match=r"(result|return type) of .*function"):
        await a_context().step("a", function)


class Caller:
    async def method(self) -> Item:
        return ITEM

    async def __call__(self) -> Item:
        return ITEM


def test_the_declared_type_is_found_behind_wrappers() -> None:
    @wraps(Caller.method)
    async def wrapped(*args: Any) -> Any:
        return args

    def late() -> Coroutine[Any, Any, Item]:
        return Caller().method()

    for function in (
        Caller().method,
        Caller(),
        partial(partial(Caller().method)),
        wrapped,
        late,
    ):
        found = result_type(function)
        assert found is not None
        assert found.hint is Item
    bare: list[Any] = [sum, len, dict, lambda: 1, type("Bare", (), {"__call__": len})()]
    assert [result_type(each) for each in bare] == [None] * len(bare)


@attrs.frozen
class Sale(Item):
    percent: int = 5


LENIENT: list[tuple[Any, Any, Any]] = [
    (Item, Sale("a", Decimal(1)), Item("a", Decimal(1))),
    (Options, {"day": date(2026, 1, 31), "more": 1}, {"day": date(2026, 1, 31), "more": 1}),
    (int, True, True),
    (float, 3, 3.0),
    (Iterable[Item], [ITEM], [ITEM]),
    (Collection[int], (1, 2), [1, 2]),
    (MutableMapping[str, Item], {"a": ITEM}, {"a": ITEM}),
    (list[Value], [1, "a"], [1, "a"]),  # type: ignore[valid-type]
    (LiteralString, "text", "text"),
    (Self, {"a": 1}, {"a": 1}),
    (TypeGuard[int], True, True),
]


@pytest.mark.parametrize("hint, value, expected", LENIENT, ids=[str(each[0]) for each in LENIENT])
async def test_a_value_that_type_checkers_take_is_taken(
    hint: Any, value: Any, expected: Any
) -> None:
    results = await run_twice(lambda ctx: ctx.step("a", returning(hint, value)))
    assert results == [expected, expected]


async def test_an_effect_that_was_applied_with_an_unknown_result_returns_none() -> None:
    async def lost() -> Item:
        raise ConnectionResetError

    async def applied(_: Invocation) -> Applied:
        return Applied()

    record = Record()
    for _ in range(2):
        ctx = a_context(record, gateway=LedgerDesk())
        assert await ctx.effect("pay", lost, reconcile=applied) is None


async def test_an_applied_result_of_another_type_is_on_record() -> None:
    record = Record()
    with pytest.raises(InvalidValueError, match="output of effect 'pay'"):
        await a_context(record, gateway=LedgerDesk()).effect("pay", returning(int, "ch_1"))
    assert [step.output for step in record.steps] == ['"ch_1"']
    mended = returning(str, "not called again")
    assert await a_context(record, gateway=LedgerDesk()).effect("pay", mended) == "ch_1"
    with pytest.raises(DivergedError, match="recorded output of step 'pay'"):
        await a_context(record, gateway=LedgerDesk()).effect("pay", returning(int, "ch_1"))


@pytest.mark.parametrize("annotation", ["an int", "m.NoSuch", "(int, str)", "Item[int]"])
async def test_an_annotation_that_cannot_be_read_is_an_error_in_one_line(annotation: str) -> None:
    with pytest.raises(UsageError, match="return type of") as caught:
        await a_context().step("a", returning(annotation, 1))
    assert "\n" not in caught.value.message
