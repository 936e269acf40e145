"""Texts with places for values of a message: `Job {payload.job} failed: {payload.error.message}`.

A place names a field of the message or a key of its payload, nothing else: it reaches no attribute
and calls nothing. `{payload.agent|nobody}` has a default. A brace is written twice.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.safe import safe

TEMPLATE_MAX: Final = 8_000
VALUE_MAX: Final = 2_000
"""Characters of one value in a text."""
FIELDS: Final = ("id", "topic", "key", "tenant", "trace", "created_at", "attempt")
_PART: Final = re.compile(r"\{\{|\}\}|\{(?P<place>[^{}]*)\}|(?P<brace>[{}])")
_PLACE: Final = re.compile(r"(?P<path>[a-z_]+(\.[A-Za-z0-9_-]+)*)(?P<default>\|[^{}]*)?", re.ASCII)


@attrs.frozen(kw_only=True)
class _Place:
    path: tuple[str, ...]
    default: str | None


@attrs.frozen
class Template:
    """A text that was checked; made by `parse`."""

    text: str
    _parts: tuple["str | _Place", ...] = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str, *, source: str) -> "Template":
        """Check a template. Raises `UsageError`."""
        if len(text) > TEMPLATE_MAX:
            raise UsageError(f"{source}: {len(text)} characters, at most {TEMPLATE_MAX}")
        parts: list[str | _Place] = []
        end = 0
        for match in _PART.finditer(text):
            parts.append(text[end : match.start()])
            end = match.end()
            if match["brace"]:
                raise UsageError(
                    f"{source}: a single {match['brace']} in {text[:80]!r}",
                    hint="write a place as {payload.job}, and a brace twice",
                )
            parts.append(match[0][0] if match["place"] is None else _place(match["place"], source))
        return cls(text, (*parts, text[end:]))

    def payload_keys(self) -> Iterator[tuple[str, bool]]:
        """Yield the keys of the payload that it names, and whether each has a default."""
        for each in self._parts:
            if isinstance(each, _Place) and each.path[0] == "payload":
                yield ".".join(each.path[1:]), each.default is not None

    def render(self, message: Mapping[str, Any], *, newline: str = " ") -> str:
        """Fill in the values, made visible; `newline` stands for each of their line breaks.

        Raises `InvalidValueError` for one that the message lacks.
        """
        return "".join(
            each if isinstance(each, str) else safe(_value(each, message), newline=newline)
            for each in self._parts
        )


def _place(text: str, source: str) -> _Place:
    match = _PLACE.fullmatch(text)
    path = () if match is None else tuple(match["path"].split("."))
    is_key = path[:1] == ("payload",) and len(path) > 1
    is_known = is_key or (len(path) == 1 and path[0] in FIELDS)
    if match is None or not is_known:
        raise UsageError(
            f"{source}: {{{text[:80]}}} is no place of a message",
            hint="there are {payload.NAME}, " + ", ".join(f"{{{each}}}" for each in FIELDS),
        )
    default = match["default"]
    return _Place(path=path, default=None if default is None else default[1:])


def _value(place: _Place, message: Mapping[str, Any]) -> str:
    value: Any = message
    for name in place.path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        if place.default is None:
            raise InvalidValueError(
                f"the message has no {'.'.join(place.path)}",
                hint=f"give a default: {{{'.'.join(place.path)}|unknown}}",
            )
        return place.default
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"
