"""Pydantic models of applications, recognised without importing Pydantic.

A model is written by its fields' names, so that what it wrote fits it again whatever its aliases
are; values from outside may use either.
"""

import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

import orjson

if TYPE_CHECKING:
    from pydantic import BaseModel


def is_model(target: Any) -> "TypeGuard[type[BaseModel]]":
    """Return whether a type is a Pydantic model: the application has imported Pydantic then."""
    pydantic = sys.modules.get("pydantic.main")
    return (
        pydantic is not None and isinstance(target, type) and issubclass(target, pydantic.BaseModel)
    )


def to_plain(model: "BaseModel") -> Any:
    """Return a model in JSON's types."""
    return model.model_dump(mode="json", by_alias=not takes_names(), round_trip=True)


def from_plain(value: Any, target: "type[BaseModel]") -> "BaseModel":
    """Return a model of a value in JSON's types, also one that is strict.

    Raises Pydantic's `ValidationError`, a `ValueError`.
    """
    options: Any = {"by_alias": True, "by_name": True} if takes_names() else {}
    return target.model_validate_json(orjson.dumps(value), **options)


def problems_of(error: Exception) -> "Iterator[tuple[tuple[str | int, ...], str]] | None":
    """Return path and text of each problem of a `ValidationError`; None for other errors.

    The texts hold no values but those of a model's own validators.
    """
    pydantic = sys.modules.get("pydantic_core")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return None
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return ((tuple(each["loc"]), each["msg"]) for each in found)


@cache
def takes_names() -> bool:
    """Return whether validation takes names beside aliases, as from 2.11 on."""
    version = sys.modules["pydantic"].VERSION.split(".")
    return (int(version[0]), int(version[1])) >= (2, 11)
