"""Values of a flow with `${{ … }}` in their texts, anywhere in lists and objects.

A text that is one expression becomes that expression's value, of any type; in a longer text it is
filled in as text. `$${{` stands for `${{` itself.

In a URL what is filled in is percent-encoded, so that it stays one segment of the path or one value
of the query. Scheme, user, host and port are written out: no value chooses the server.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

import attrs

from cortex.flows.expression import Node, Scope, evaluate, parse
from cortex.flows.functions import ExpressionError, as_json, as_text

BYTES_MAX: Final = 1_048_576
"""Of one step's values, filled in: more would not fit into its record."""
EXPRESSIONS_MAX: Final = 1_000
"""In one text."""
_OPEN: Final = "${{"
_SERVER: Final = re.compile(r"https?://[^/?#\\@\s]+[/?#]", re.IGNORECASE)
"""How a URL with expressions begins: the first of them comes after this."""
_DOTS: Final = frozenset({".", ".."})
"""Segments of a path that lead elsewhere."""

Path: TypeAlias = tuple[str | int, ...]


@attrs.frozen
class Text:
    """A text with expressions in it."""

    parts: tuple[str | Node, ...]

    @property
    def nodes(self) -> Iterator[Node]:
        return (each for each in self.parts if not isinstance(each, str))


@lru_cache(maxsize=512)
def parse_text(text: str) -> str | Node | Text:
    """Return a text as it is, one expression, or a text with expressions."""
    parts: list[str | Node] = []
    at = 0
    while (begin := text.find(_OPEN, at)) >= 0:
        if begin > at and text[begin - 1] == "$":
            parts += [text[at : begin - 1], _OPEN]
            at = begin + len(_OPEN)
            continue
        end = text.find("}}", begin)
        if end < 0:
            raise ExpressionError("'${{' has no '}}' after it")
        if len(parts) >= 2 * EXPRESSIONS_MAX:
            raise ExpressionError(f"more than {EXPRESSIONS_MAX:,} expressions in one text")
        parts += [text[at:begin], parse(text[begin + len(_OPEN) : end])]
        at = end + 2
    parts.append(text[at:])
    if any(not isinstance(each, str) for each in parts):
        if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():  # type: ignore[union-attr] # noqa: PLR2004 -- one expression and nothing around it
            return parts[1]
        return Text(tuple(each for each in parts if each != ""))
    return "".join(each for each in parts if isinstance(each, str))


def expressions(value: Any, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Yield every expression of a value with its place. Raises `TemplateError`."""
    for where, text in _texts(value, path):
        try:
            parsed = parse_text(text)
        except ExpressionError as error:
            raise TemplateError(error, where) from error
        if isinstance(parsed, Text):
            yield from ((where, node) for node in parsed.nodes)
        elif not isinstance(parsed, str):
            yield where, parsed


class TemplateError(ExpressionError):
    """An expression cannot be read; `path` says where it stands."""

    def __init__(self, error: ExpressionError, path: Path) -> None:
        super().__init__(error.message, hint=error.hint)
        self.path = path


def has_expression(value: Any) -> bool:
    """Return whether anything in a value is to be filled in."""
    return any("${{" in text for _, text in _texts(value, ()))


def is_expression(value: Any) -> bool:
    """Return whether a value is a text that begins with an expression."""
    return isinstance(value, str) and value.strip().startswith("${{")


def url_refusal(text: str) -> str | None:
    """Return what is wrong with the expressions of a URL before they are filled in."""
    parsed = parse_text(text)
    if isinstance(parsed, str):
        return None
    begins = parsed.parts[0] if isinstance(parsed, Text) else ""
    if isinstance(begins, str) and _SERVER.match(begins):
        return None
    return (
        "must have its scheme, host and port written out, and a / before its first expression, "
        f"got {text!r:.200}"
    )


def filled(value: Any, scope: Scope, *, urls: Collection[Path] = ()) -> Any:
    """Return the value with its expressions evaluated; `urls`: the places of URLs in it.

    Raises `ExpressionError`.
    """
    return _Filling(scope, frozenset(urls)).of(value, ())


class _Filling:
    """Counts what it makes: a large value can be named many times."""

    def __init__(self, scope: Scope, urls: frozenset[Path]) -> None:
        self._scope = scope
        self._urls = urls
        self._around_urls = {url[:depth] for url in urls for depth in range(1, len(url))}
        self._left = BYTES_MAX

    def of(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            if path in self._urls:
                return self._url(value)
            if path in self._around_urls and has_expression(value):  # as in `_url`
                raise ExpressionError(f"{path[-1]} would choose the URL: {value!r:.200}")
            return self._text(value)
        if isinstance(value, Mapping):
            return {key: self.of(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(each, (*path, index)) for index, each in enumerate(value)]
        return value

    def _url(self, text: str) -> str:
        if (refusal := url_refusal(text)) is not None:  # of a flow that was stored before
            raise ExpressionError(f"the URL {refusal}")
        parsed = parse_text(text)
        if not isinstance(parsed, Text):
            return str(parsed)
        parts = [
            each if isinstance(each, str) else quote(self._counted_text(each), "", errors="replace")
            for each in parsed.parts
        ]
        url = "".join(parts)
        path = re.split(r"[?#]", url, maxsplit=1)[0]
        if any(unquote(each) in _DOTS for each in path.split("/")):
            raise ExpressionError(f"the URL {url!r:.200} leaves its folder by a segment of dots")
        return url

    def _text(self, text: str) -> Any:
        parsed = parse_text(text)
        if isinstance(parsed, str):
            return parsed
        if isinstance(parsed, Text):
            return "".join(
                each if isinstance(each, str) else self._counted_text(each) for each in parsed.parts
            )
        value = evaluate(parsed, self._scope)
        self._count(len(as_json(value)))
        return value

    def _counted_text(self, node: Node) -> str:
        text = as_text(evaluate(node, self._scope))
        self._count(len(text.encode(errors="replace")))
        return text

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ExpressionError(f"the values make more than {BYTES_MAX:,} bytes")


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _texts(each, (*path, index))
