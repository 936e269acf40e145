"""Secret values known to this process, and their removal from text.

A value is registered from the moment it is resolved. From then on `redact` replaces it by a marker,
`[secret NAME, N characters]`, in every notation: plain, escaped as JSON or HTML, percent-encoded,
in hexadecimal digits, or inside base64. It is called where text leaves the process for good: into
the record (`durable.codec`), into the database (`store.database`), into a log (`cli.logs`). Text
that is cut on its way there is redacted before, since half a secret is not recognised.

Safe to use from several threads at once. Without registered values, all of it costs one comparison.
"""

import html
import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, quote_plus

from attrs import frozen

from cortex.domain.errors import InvalidValueError
from cortex.domain.key_shapes import masked

VALUE_CHARS_MIN: Final = 8
"""Shorter values occur in ordinary text: redacting them would garble it."""
VALUES_MAX: Final = 1_000
"""The end of use of a rotated value is unknown; the values used longest ago are dropped."""
NAME: Final = re.compile(r"[A-Za-z0-9_. -]{1,64}")

_MARKER: Final = rf"\[secret {NAME.pattern}, \d+ characters\]"
_HAS_MARKER: Final = re.compile(_MARKER)
_NEVER: Final = r"(?!)"
_JSON_BEGINS: Final = frozenset('{["')
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*', re.DOTALL)
"""In JSON: a text or a number."""


class Redactor:
    """The secrets of one process. The runtime shares one instance; tests make their own."""

    def __init__(self) -> None:
        self._values: dict[str, _Value] = {}
        self._patterns: dict[str, str] = {}
        self._lock = threading.Lock()
        self._known: _Known | None = None

    def register(self, name: str, value: str) -> None:
        """Redact this value from now on. Raises `InvalidValueError` if it is too short for that."""
        if len(value) < VALUE_CHARS_MIN:
            raise InvalidValueError(
                f"secret {name} has {len(value)} characters, at least {VALUE_CHARS_MIN} are needed",
                hint="a shorter one could not be distinguished from ordinary text in the record",
            )
        with self._lock:
            existing = self._values.pop(value, None)
            if existing is not None and existing.name == name:
                self._values[value] = existing
                return
            self._values[value] = _Value.of(name, value)
            while len(self._values) > VALUES_MAX:
                del self._values[next(iter(self._values))]
            self._known = _Known.of(self._values.values(), self._patterns)

    def register_pattern(self, name: str, pattern: str) -> None:
        """Redact whatever this regular expression matches: at least 8 characters, no groups."""
        with self._lock:
            self._patterns[name] = pattern
            self._known = _Known.of(self._values.values(), self._patterns)

    def knows_any(self) -> bool:
        """Return whether there is anything to redact: a cheap check before expensive work."""
        return self._known is not None

    def redact(self, text: str) -> str:
        """Return the text with markers in place of secrets; JSON stays JSON. Idempotent."""
        known = self._known
        return text if known is None else known.redact(text)

    def redact_each(self, texts: Sequence[Any]) -> Sequence[Any]:
        """Return a list whose texts are redacted; other items stay. Cheap for many."""
        known = self._known
        if known is None or not known.is_in("\0".join(each for each in texts if type(each) is str)):
            return texts
        return [known.redact(each) if isinstance(each, str) else each for each in texts]

    def secret_in(self, text: str) -> str | None:
        """Return the name of a secret in this text; None if there is none.

        For text that must not be changed silently, such as the name of a step: refuse it.
        """
        known = self._known
        return None if known is None else known.first_in(text)

    def begun_in(self, text: str) -> int:
        """Return how many characters at its end may begin a secret that continues later.

        For text that goes out piece by piece: until the rest is there, these cannot be judged.
        """
        known = self._known
        return 0 if known is None else max((_begun(text, each) for each in known.values), default=0)

    def ended_in(self, text: str) -> int:
        """Return how many characters at its beginning may end a secret that began before it."""
        known, mirrored = self._known, text[::-1]
        if known is None:
            return 0
        return max((_begun(mirrored, each[::-1]) for each in known.values), default=0)


@frozen
class _Value:
    """One secret: its name, its marker, and each of its notations."""

    name: str
    marker: str
    forms: frozenset[str]

    @classmethod
    def of(cls, name: str, value: str) -> "_Value":
        return cls(name, _marker(name, value), frozenset(_forms(value)))


@frozen
class _Known:
    """All values, ready to search for.

    One search for each form is ten times as fast as one regular expression for all of them. That
    expression is only built after a hit, for the values that were found.
    """

    values: Mapping[str, _Value]
    """By each of their forms."""
    shortest: int
    """Characters: shorter text cannot contain a secret."""
    described: str
    """The patterns as one, each a group."""
    search: re.Pattern[str]
    patterns: tuple[str, ...]
    """Their names, in order."""

    @classmethod
    def of(cls, values: Iterable[_Value], patterns: Mapping[str, str]) -> "_Known":
        by_form = {form: value for value in values for form in value.forms}
        described = "|".join(f"({each})" for each in patterns.values()) or f"({_NEVER})"
        return cls(
            values=by_form,
            shortest=min([VALUE_CHARS_MIN, *map(len, by_form)]),
            described=described,
            search=re.compile(described),
            patterns=tuple(patterns),
        )

    def is_in(self, text: str) -> bool:
        """Return whether there may be work: for most text this is all that is done."""
        if len(text) < self.shortest:
            return False
        for form in self.values:
            if form in text:
                return True
        return self.search.search(text) is not None

    def first_in(self, text: str) -> str | None:
        for form, value in self.values.items():
            if form in text:
                return value.name
        match = self.search.search(text)
        return None if match is None else self.patterns[(match.lastindex or 1) - 1]

    def redact(self, text: str) -> str:
        if not self.is_in(text):
            return text
        present = {value for form, value in self.values.items() if form in text}
        forms = sorted((form for value in present for form in value.forms), key=len, reverse=True)
        # Markers first, and those stay: a marker may itself contain a secret's text.
        either = re.compile("|".join([self.described, _MARKER, *map(re.escape, forms)]))

        def plain(part: str) -> str:
            return either.sub(self._put, part)

        if text[0] in _JSON_BEGINS and _is_json(text):
            return _TOKEN.sub(lambda token: self._in_json(token[0], plain), text)
        return plain(text)

    def _put(self, match: re.Match[str]) -> str:
        if match.lastindex is not None:
            return _marker(self.patterns[match.lastindex - 1], match[0])
        value = self.values.get(match[0])
        return match[0] if value is None else value.marker

    def _in_json(self, token: str, plain: Callable[[str], str]) -> str:
        if token[0] != '"':
            number = self.values.get(token.lstrip("-"))
            return token if number is None else json.dumps(number.marker)
        text = json.loads(token)
        clean = plain(text)
        return token if clean == text else json.dumps(clean, ensure_ascii=token.isascii())


def _marker(name: str, value: str) -> str:
    return f"[secret {name}, {len(value)} characters]"


def _begun(text: str, form: str) -> int:
    """Return how much of this form stands at the end of a text: less than all of it."""
    at = max(0, len(text) - len(form) + 1)
    while (at := text.find(form[0], at)) >= 0:
        # First a few: copying a long rest at every place would take too long.
        few = text[at : at + VALUE_CHARS_MIN]
        if form.startswith(few) and form.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _forms(value: str) -> Iterator[str]:
    """Yield each notation in which a value is likely to be written."""
    as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    slashed = tuple(each.replace("/", r"\/") for each in as_json)  # as PHP does
    for escaped in (value, *as_json, *slashed, repr(value)[1:-1]):
        yield escaped
        # JSON as text in JSON, such as a tool's answer in a message.
        yield json.dumps(escaped)[1:-1]
        yield json.dumps(escaped, ensure_ascii=False)[1:-1]
    for encoded in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield encoded
        yield re.sub("%..", lambda match: match[0].lower(), encoded)
    in_html = html.escape(value)
    yield from (in_html, in_html.replace("&quot;", "&#34;").replace("&#x27;", "&#39;"))
    yield from (value.encode().hex(), value.encode().hex().upper())
    for encode in (b64encode, urlsafe_b64encode):
        for offset in range(3):
            yield _inside_base64(value, offset, encode(b"\0" * offset + value.encode()).decode())


def _inside_base64(value: str, offset: int, encoded: str) -> str:
    """Return the part of `encoded` that the value alone determines, after `offset` other bytes.

    A character is six bits; those at the edges contain bits of the neighbours, too.
    """
    bits = 8 * offset
    return encoded[-(-bits // 6) : (bits + 8 * len(value.encode())) // 6]


_process: Final = Redactor()

register = _process.register
register_pattern = _process.register_pattern
knows_any = _process.knows_any
redact = _process.redact
redact_each = _process.redact_each
secret_in = _process.secret_in
begun_in = _process.begun_in
ended_in = _process.ended_in


# --- Text that Postgres can store: no NUL, no half of a surrogate pair, not too long.


TEXT_MAX: Final = 2_000
"""Characters of an error message that are kept."""

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def was_redacted(text: str) -> bool:
    """Return whether a marker stands in place of a secret in this text."""
    return _HAS_MARKER.search(text) is not None


def storable(text: str) -> str:
    """Return the text with unstorable characters made visible."""
    return LONE_SURROGATE.sub("\ufffd", text.replace("\x00", "\ufffd"))


def clean_text(text: str, *, limit: int = TEXT_MAX) -> str:
    """Return text for people that Postgres can store, cut at `limit` characters.

    No secret is cut in half, and keys of others are masked.
    """
    visible = storable(masked(redact(text)))
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"


EXCERPT_MAX: Final = 200


def excerpt(text: str, *, limit: int = EXCERPT_MAX) -> str:
    """Return the beginning of what a server answered, on one line, for an error message."""
    printable = "".join(char if char.isprintable() else " " for char in clean_text(text))
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
