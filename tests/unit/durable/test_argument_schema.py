"""The schemas of arguments that pods store: they refuse nothing that the handler takes."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NewType
from uuid import UUID

import attrs
import orjson
import pytest

from cortex.domain.argument_check import CodeArguments, check_payload, payload_misfit
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.durable.argument_schema import DEFAULT_BYTES_MAX
from cortex.durable.registry import JobType, job


class Colour(enum.StrEnum):
    RED = "red"


class AnyCase(enum.StrEnum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> "AnyCase | None":
        return cls.RED if str(value).lower() == "red" else None


@attrs.frozen
class Line:
    price: float
    note: str = attrs.field(default="", metadata={"schema": {"maxLength": 3}})
    total: float = attrs.field(init=False, default=0.0)


@attrs.frozen
class Order:
    lines: list[Line]
    colour: AnyCase | None = None


@attrs.frozen
class Tree:
    children: "list[Tree]" = attrs.field(factory=list)


@dataclass
class Plain:
    size: int


Name = NewType("Name", str)
EXACT: tuple[Any, ...] = (
    *(int, float, str, bool, Any, object, Path, UUID, date, datetime, Colour, Line),
    *(Literal["a", 1], list[str], Sequence[int], dict[str, int], tuple[int, ...], int | str | None),
    *(list[Line], list, dict),
)
"""Types whose schema refuses all that the handler refuses."""
LENIENT: tuple[Any, ...] = (
    AnyCase,
    Order,
    Tree,
    Plain,
    list[Plain],
    set[int],
    dict[str, AnyCase],
    Name,
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -3, 1.5, "", "a", "red", "RED", "2026-01-31", "2026-01-31T12:00:00+00:00"),
    *("7f3c0000-0000-4000-8000-000000000000", [], ["a"], [1], [1.5], {}, {"a": 1}, {"a": "red"}),
    *(
        {"price": 1},
        {"price": "x"},
        {"price": 1, "total": 2, "note": "longer"},
        {"price": 1, "x": 2},
    ),
    *([{"size": 1, "x": 2}], {"size": 1, "x": 2}),
    *({"lines": [{"price": 1}], "colour": "Red"}, {"lines": 1}, {"children": [{}]}, {"size": 3}),
    [{"price": 1}],
)


def taking(hint: Any) -> JobType[..., Any]:
    async def handler(ctx: Any, value: Any) -> None: ...

    handler.__annotations__["value"] = hint
    return job("shop")(handler)


STRANGE: Any = object()


def fits(job_type: JobType[..., Any], value: Any) -> bool:
    stored = orjson.loads(orjson.dumps(job_type.schema))
    code = CodeArguments(version="v1", schema=stored)
    return payload_misfit("shop", code, {"value": value}) is None


@pytest.mark.parametrize("hint", [*EXACT, *LENIENT], ids=str)
def test_argument_schema_accepts_all_that_the_handler_accepts(hint: Any) -> None:
    job_type = taking(hint)
    for value in VALUES:
        try:
            job_type.check_payload(orjson.dumps({"value": value}).decode())
        except InvalidValueError:
            assert hint not in EXACT or not fits(job_type, value), value
        else:
            assert fits(job_type, value), value


@job("shop")
async def old(ctx: Any, user: str, site: str | None = None, count: int = 1) -> None: ...


@job("shop")
async def new(ctx: Any, user: str, site: str, *, first: bool = False) -> None: ...


def refuse_bad_users(user: str, **_: Any) -> None:
    if user == "bad":
        raise RejectedError("is bad")


OLD, NEW = (
    CodeArguments(version=version, schema=each.schema)
    for version, each in (("v1", old), ("v2", new))
)
CHECKED = job("shop", check=refuse_bad_users)(old.handler)


def check(payload: str, *live: CodeArguments, own: JobType[..., Any] | None = None) -> str:
    """Return why a payload is refused, nothing if it is taken."""
    try:
        check_payload("shop", payload, own=own, live=live)
    except InvalidValueError as error:
        return f"{error.message} ({error.hint})"
    return ""


def test_all_problems_are_named_at_once() -> None:
    assert check('{"usr": 1, "cuont": 2, "count": "many"}', OLD) == (
        "payload of 'shop' lacks user; has unknown keys 'usr', 'cuont'; "
        'payload.count must be a whole number, got "many" '
        "(did you mean 'user', 'count'?)"
    )


def test_a_payload_that_one_living_code_takes_is_accepted() -> None:
    assert check('{"user": "ann", "count": 2}', NEW, OLD) == ""
    assert check('{"user": "ann", "site": "x", "first": true}', NEW, OLD) == ""
    refused = check('{"user": "ann", "site": "x", "first": 1, "count": 2}', NEW, OLD)
    assert refused.startswith("payload of code v1 of 'shop' has an unknown key 'first'")
    assert check('{"anything": 1}') == ""


def test_own_code_decides_unless_another_code_takes_it() -> None:
    assert "lacks user" in check("{}", own=old)
    own = CodeArguments(version="own", schema=CHECKED.schema)
    assert "is bad" in check('{"user": "bad"}', own, own=CHECKED)
    assert check('{"user": "ann", "site": "x", "first": true}', own, NEW, own=CHECKED) == ""
    assert "is bad" in check('{"user": "bad"}', own, NEW, own=CHECKED)


def test_a_schema_shows_defaults_that_json_has() -> None:
    @job("shop")
    async def handler(
        ctx: Any, a: int = 1, b: Line | None = Line(2.0), c: Any = STRANGE, d: str = "x" * 2000
    ) -> None: ...

    assert len("x" * 2000) > DEFAULT_BYTES_MAX
    schema = handler.schema
    defaults = {name: each.get("default", ...) for name, each in schema["properties"].items()}
    assert defaults == {"a": 1, "b": {"price": 2.0, "note": ""}, "c": ..., "d": ...}
    assert (schema["required"], schema["additionalProperties"]) == ([], False)
