"""Converts typed values to JSON's types: a tool's result on its way to the model.

By hand, because cattrs trusts the declared type of a field and would let bytes in a `str` through;
and because models see the fields that a class works out itself, which `durable.codec` leaves out.
"""

import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from cortex.domain.canonical import DEPTH_MAX, TOO_DEEP
from cortex.domain.classification import class_name
from cortex.domain.file import File
from cortex.domain.key_shapes import masked
from cortex.domain.redaction import redact, storable
from cortex.durable import pydantic_models
from cortex.durable.class_fields import field_names, has_fields
from cortex.durable.structuring import MisfitError, Problem, key_text

RAW_MAX_BYTES = 65_536


def plain(value: object) -> object:
    """Return `value` in JSON's types; raises `MisfitError` that names what has no such form.

    attrs values become dicts, tuples and sets lists, paths and UUIDs text, dates ISO 8601. NUL and
    lone surrogates, which Postgres cannot store, become U+FFFD.
    """
    return _plain(value, ())


def raw_text(value: object) -> str:
    """Return any value as text for the record: JSON if possible, at most 64 KiB of UTF-8."""
    try:
        text = (
            value
            if isinstance(value, str)
            else json.dumps(plain(value), ensure_ascii=False, default=str)
        )
    except MisfitError:
        text = _shown(value)
    data = storable(masked(redact(text))[:RAW_MAX_BYTES]).encode()
    return data[:RAW_MAX_BYTES].decode(errors="ignore")


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException as error:  # noqa: BLE001, ASYNC103 -- a tool's own class still has a name
        return f"<{type(value).__name__}, whose repr raises {class_name(error)}>"  # noqa: ASYNC104 -- it awaits nothing


def _plain(  # noqa: C901, PLR0911 - one form a line
    value: object, path: tuple[str | int, ...]
) -> object:
    if len(path) > DEPTH_MAX:
        raise MisfitError((Problem(path[:3], TOO_DEEP),))
    match value:
        case Enum():
            return _plain(value.value, path)
        case str():
            return storable(value)
        case None | bool() | int() | float() | File():  # a file is kept beside the record: Toolbox
            return value
        case Mapping():
            return {_key(key, path): _plain(item, (*path, str(key))) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, (*path, index)) for index, item in enumerate(value)]
        case set() | frozenset():
            return [_plain(item, path) for item in sorted(value, key=repr)]
        case Path() | UUID() | Decimal():
            return str(value)
        case date():
            return value.isoformat()
        case _ if has_fields(type(value)):
            names = field_names(type(value))
            return {name: _plain(getattr(value, name), (*path, name)) for name in names}
        case _ if pydantic_models.is_model(type(value)):
            return _plain(pydantic_models.to_plain(cast("Any", value)), path)
        case _:
            reason = f"is {type(value).__name__}, which JSON has no form for"
            raise MisfitError((Problem(path, reason),))


def _key(key: object, path: tuple[str | int, ...]) -> str:
    if not isinstance(key, _KEYS):
        raise MisfitError((Problem(path, f"has the key {key!r}, but JSON keys are text"),))
    return storable(key_text(key))


_KEYS: Final = (str, Enum, int, float, Path, UUID, Decimal, date)
