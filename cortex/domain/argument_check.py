"""Checks arguments against a stored schema, where the code that takes them is not at hand.

Edited arguments of a tool fit the schema that was stored with the request, and payloads those of
the pods that serve the job type. This accepts exactly what the code's own check accepts, except for
what a schema cannot express: the validators of its own classes. A schema with an unknown keyword
accepts nothing.
"""

import difflib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, Protocol, Self
from uuid import UUID

import attrs
import orjson

from cortex.domain.canonical import Path, canonical, field_of, parse
from cortex.domain.classification import describe
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.redaction import LONE_SURROGATE, secret_in
from cortex.domain.safe import safe

SHOWN_CHARS_MAX: Final = 80


@attrs.frozen
class Misfit:
    """One misfit; `reason` continues after the field: "must be text, got 3"."""

    field: str
    reason: str


def misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """Return all misfits of a JSON value with a schema of `cortex.durable.json_schema`."""
    return [Misfit(field_of(path), reason) for path, reason in _misfits(schema, value, ())]


Found = Iterator[tuple[Path, str]]


def _misfits(schema: Mapping[str, Any], value: Any, path: Path) -> Found:
    unknown = sorted(schema.keys() - SAYS_NOTHING - KEYWORDS)
    if unknown:
        yield path, f"cannot be checked: its schema has {', '.join(map(safe, unknown))}"
        return
    if "anyOf" in schema:
        yield from _any_of(schema["anyOf"], value, path)
    if "enum" in schema and not any(_is_same(each, value) for each in schema["enum"]):
        yield path, f"must be one of {', '.join(map(_shown, schema['enum']))}{_got(value)}"
        return
    if "type" in schema:
        yield from _of_kind(schema, value, path)


def _of_kind(schema: Mapping[str, Any], value: Any, path: Path) -> Found:
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in KINDS:
        yield path, f"cannot be checked: its schema has the type {_shown(kind)}"
        return
    expected, is_kind = KINDS[kind]
    if not is_kind(value):
        yield path, f"must be {expected}{_got(value)}"
    elif kind == "string":
        yield from _of_text(schema, value, path)
    elif kind == "array":
        for index, item in enumerate(value):
            yield from _misfits(schema.get("items", {}), item, (*path, index))
    elif kind == "object":
        yield from _of_object(schema, value, path)


def _any_of(members: list[Mapping[str, Any]], value: Any, path: Path) -> Found:
    """With one real member, its own misfits are reported."""
    per_member = [list(_misfits(member, value, path)) for member in members]
    if all(per_member):
        real = [
            each
            for each, member in zip(per_member, members, strict=True)
            if member.get("type") != "null"
        ]
        yield from real[0] if len(real) == 1 else [(path, f"fits none of its types{_got(value)}")]


def _of_text(schema: Mapping[str, Any], text: str, path: Path) -> Found:
    if "\0" in text or LONE_SURROGATE.search(text):
        yield path, "must be text without NUL and halves of surrogate pairs"
    elif (written := schema.get("format")) is not None:
        expected, parse = FORMATS.get(written, (f"of the format {_shown(written)}", _refuse))
        try:
            parse(text)
        except ValueError:
            yield path, f"must be {expected}{_got(text)}"


def _of_object(schema: Mapping[str, Any], value: Mapping[str, Any], path: Path) -> Found:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield (*path, name), "is missing"
    for name, item in value.items():
        if name in properties:
            yield from _misfits(properties[name], item, (*path, name))
        elif others is False:
            properties_text = ", ".join(map(safe, properties)) or "none"
            yield (*path, name), f"is unknown; known: {properties_text}"
        else:
            yield from _misfits({} if others is True else others, item, (*path, name))


def _refuse(_: str) -> object:
    raise ValueError


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float can hold
        return False


def _is_same(choice: Any, value: Any) -> bool:
    return type(choice) is type(value) and bool(choice == value)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    shown = safe(text)
    return shown if len(shown) <= SHOWN_CHARS_MAX else f"{shown[:SHOWN_CHARS_MAX]}…"


def _got(value: Any) -> str:
    return f", got {_shown(value)}"


SAYS_NOTHING: Final = frozenset({"default", "description", "title"})
"""Keywords of JSON Schema that refuse no value."""
KEYWORDS: Final = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "enum",
        "format",
        "items",
        "properties",
        "required",
        "type",
    }
)
KINDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": (
        "a whole number",
        lambda value: isinstance(value, int) and not isinstance(value, bool),
    ),
    "number": ("a finite number", _is_number),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("a mapping", lambda value: isinstance(value, dict)),
}
"""By JSON Schema's type name: the description for people, and the check."""
FORMATS: Final[dict[Any, tuple[str, Callable[[str], object]]]] = {
    "uuid": ("a UUID", UUID),
    "date": ("a date such as 2026-01-31", date.fromisoformat),
    "date-time": ("a time such as 2026-01-31T12:00:00+00:00", datetime.fromisoformat),
}


@attrs.frozen(kw_only=True)
class CodeArguments:
    """The arguments that one code takes for a job type."""

    version: str
    """The version of the code, for people."""
    schema: Mapping[str, Any]


@attrs.frozen
class KeyProblems:
    """Arguments that a payload lacks, and keys that it has and no argument is called."""

    problems: tuple[str, ...]
    hint: str | None
    """The arguments that unknown keys resemble."""

    @classmethod
    def of(
        cls, *, missing: Collection[str], unknown: Collection[str], known: Collection[str]
    ) -> Self:
        close = [difflib.get_close_matches(key, known, n=1) for key in unknown]
        meant = dict.fromkeys(near[0] for near in close if near)
        keys = "an unknown key" if len(unknown) == 1 else "unknown keys"
        lacks = (f"lacks {', '.join(missing)}",) if missing else ()
        has = (f"has {keys} {', '.join(map(repr, unknown))}",) if unknown else ()
        hint = f"did you mean {', '.join(map(repr, meant))}?" if meant else None
        return cls(problems=lacks + has, hint=hint)


@attrs.frozen(kw_only=True)
class PayloadMisfit:
    """All problems of a payload that does not fit one code."""

    job_type: str
    code: CodeArguments
    problems: tuple[str, ...]
    missing: frozenset[str]
    hint: str | None

    def error(self, *, names_code: bool) -> InvalidValueError:
        """Return the error for people; `names_code`: there are others."""
        which = (
            f"code {self.code.version} of {self.job_type!r}" if names_code else repr(self.job_type)
        )
        text = "; ".join(self.problems)
        if names_code or not text.startswith("payload."):
            text = f"payload of {which}{':' if text.startswith('payload.') else ''} {text}"
        return InvalidValueError(text, hint=self.hint)


def payload_misfit(
    job_type: str, code: CodeArguments, payload: Mapping[str, Any]
) -> PayloadMisfit | None:
    """Return the problems of a payload with a code's arguments; None: it fits."""
    properties: Mapping[str, Any] = code.schema.get("properties", {})
    missing = [name for name in code.schema.get("required", ()) if name not in payload]
    unknown = [name for name in payload if name not in properties]
    keys = KeyProblems.of(missing=missing, unknown=unknown, known=properties)
    problems = list(keys.problems)
    for name, value in payload.items():
        if name in properties:
            wrong = _misfits(properties[name], value, ("payload", name))
            problems += [f"{field_of(path)} {reason}" for path, reason in wrong]
    if not problems:
        return None
    return PayloadMisfit(
        job_type=job_type,
        code=code,
        problems=tuple(problems),
        missing=frozenset(missing),
        hint=keys.hint,
    )


def live_misfit(
    job_type: str, codes: Sequence[CodeArguments], payload: Mapping[str, Any]
) -> PayloadMisfit | None:
    """Return the fewest problems that a code has with a payload; None: one takes it, or no code."""
    misfits = [payload_misfit(job_type, each, payload) for each in codes]
    found = [each for each in misfits if each is not None]
    if len(found) < len(misfits) or not found:
        return None
    return min(found, key=lambda each: len(each.problems))


class PayloadChecker(Protocol):
    """A job type as this process has it."""

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def check_payload(self, payload: str, *, is_fit_only: bool = False) -> None: ...


def check_payload(
    job_type: str,
    payload: str,
    *,
    own: PayloadChecker | None,
    live: Sequence[CodeArguments],
    is_fit_only: bool = False,
    options: Collection[str] = (),
) -> None:
    """Raise `InvalidValueError` for a payload that neither this process nor a live pod takes.

    `own`: the job type as this process has it, if it does; `live`: what live pods take. With
    neither every payload passes. `is_fit_only`: without the type's own check of the values.
    `options`: what was given beside the payload, and may have been meant as an argument.
    """
    refusal: InvalidValueError | None = None
    if own is not None:
        try:
            own.check_payload(payload, is_fit_only=is_fit_only)
        except InvalidValueError as error:
            refusal = error
        except Exception:
            raise
        except BaseException as error:  # of the application's own check: it must not end a pod
            raise InvalidValueError(f"payload of {job_type!r}: {describe(error)}") from error
        else:
            return
        live = [each for each in live if each.schema != own.schema]
    given = orjson.loads(payload)
    misfit = live_misfit(job_type, live, given)
    if refusal is None and misfit is not None:
        meant = sorted(misfit.missing & set(options))
        if meant:
            hint = f"{meant[0]!r} is an option: give all arguments in payload={{{meant[0]!r}: …}}"
            misfit = attrs.evolve(misfit, hint=hint)
        refusal = misfit.error(names_code=len(live) > 1)
    if refusal is not None and (misfit is not None or not live):
        raise refusal


EDITED_BYTES_MAX: Final = 1_048_576
WHAT: Final = "edited arguments"


def not_editable() -> RejectedError:
    """Return the error for an edit of a request that has no schema."""
    return RejectedError(
        "its arguments cannot be edited: they have no schema",
        hint="approve or deny them as they are",
    )


def edited_arguments(text: str, *, schema: Mapping[str, Any] | None) -> str:
    """Return edited arguments as canonical JSON; the types of values stay as written.

    `schema` is the one that was stored with the request. Raises `RejectedError` without a schema,
    `InvalidValueError` that names every argument that does not fit.
    """
    if schema is None:
        raise not_editable()
    size = len(text.encode(errors="replace"))
    if size > EDITED_BYTES_MAX:
        raise InvalidValueError(f"{WHAT} have {size:,} bytes, more than {EDITED_BYTES_MAX:,}")
    value = parse(text, what="the edit")
    if not isinstance(value, dict):
        raise InvalidValueError(f"{WHAT} must be an object by their names")
    wrong = misfits(schema, value)
    if wrong:
        problems = "; ".join(f"{each.field} {each.reason}" for each in wrong)
        raise InvalidValueError(f"{WHAT} do not fit: {problems}")
    edited = canonical(value, what=WHAT)
    if secret := secret_in(edited):
        raise InvalidValueError(f"{WHAT} contain secret {secret}, which must not be recorded")
    return edited


@attrs.frozen(kw_only=True)
class ArgumentChange:
    """One difference. Both sides are JSON in which nothing is hidden; None: absent."""

    field: str
    old: str | None
    new: str | None


def changes(old: Any, new: Any) -> list[ArgumentChange]:
    """Return every difference of two JSON values, types included: 1, 1.0 and true differ.

    Raises `InvalidValueError` for what is no JSON.
    """
    return list(_changes(old, new, ()))


def _changes(old: Any, new: Any, path: Path) -> Iterator[ArgumentChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _change(old.get(name, _ABSENT), new.get(name, _ABSENT), (*path, name))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, now = (each[index] if index < len(each) else _ABSENT for each in (old, new))
            yield from _change(was, now, (*path, index))
    elif canonical(old) != canonical(new):
        yield ArgumentChange(field=field_of(path), old=_shown_value(old), new=_shown_value(new))


_ABSENT: Final = object()


def _change(old: Any, new: Any, path: Path) -> Iterator[ArgumentChange]:
    if old is _ABSENT or new is _ABSENT:
        yield ArgumentChange(field=field_of(path), old=_shown_value(old), new=_shown_value(new))
    else:
        yield from _changes(old, new, path)


def _shown_value(value: Any) -> str | None:
    return None if value is _ABSENT else safe(canonical(value))
