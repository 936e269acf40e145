"""A call with its arguments on one line, so that no argument can be mistaken for another.

Invariants: text is in quotes, and no character of it can be mistaken for their end. A number is
shown whole or counted as missing. Notes about cut, collapsed or missing parts stand outside the
quotes, where no argument can write.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import attrs

from cortex.domain.canonical import WHOLE, Path, canonical
from cortex.domain.safe import safe, unglued

BRIEF_CELLS: Final = 160
"""For a call where a line may be broken."""
NAME_CELLS: Final = 60
"""For the name of a call."""

_NAME_CELLS_MIN: Final = 12
_FIELD_CELLS: Final = 32
_TEXT_CELLS: Final = 48
_TEXT_CELLS_MIN: Final = 6
"""A shorter text would be useless: it is counted instead."""
_PIECES_MAX: Final = 16
"""Each line is kept while it is shown, and no line has room for more."""
_AMOUNT_CHARS_MAX: Final = 40
_RANKED_MAX: Final = 10_000
"""Beyond this many values, the most deeply nested are only counted."""
_BLANKS_MIN: Final = 3

_BARE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]+(?: [A-Za-z0-9_.:/-]+)*")
_BARE_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TOKEN: Final = re.compile(rf"(\s{{{_BLANKS_MIN},}})|\S{{1,64}}|\s{{1,2}}")
# Characters that a reader may mistake for the end of the quotes, or for a mark of ours.
_LOOKALIKES: Final = frozenset(
    "\u02ba\u02dd\u02ee\u02f6\u05f4\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u301d\u301e"
    "\u301f\u3003\uff02\U0001f676\U0001f677\U0001f678⟦⟧"
)
_AMOUNT_TEXT: Final = re.compile(
    r"[^\W\d]{0,4}[^\w\s]?[ \u00a0]?-?\d[\d.,'_ \u00a0]*[^\w\s]?[^\W\d]{0,4}"
)
_AMOUNT_WORDS: Final = (
    "amount amounts balance budget cents cost costs count currency deposit discount dollars "
    "eur euro euros fee fees limit max number percent price prices quantity qty rate salary "
    "sum tax total usd value vat volume"
)
_RECIPIENT_WORDS: Final = (
    "account address bank bcc beneficiary branch bucket card cc channel contact customer "
    "destination domain email host iban owner payee person phone recipient recipients repo "
    "repository server supplier target to uri url user username vendor wallet"
)
_AMOUNT_NAMES: Final = frozenset(_AMOUNT_WORDS.split())
_RECIPIENT_NAMES: Final = frozenset(_RECIPIENT_WORDS.split())
_WORDS: Final = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_RECIPIENT_TEXT: Final = re.compile(
    r"[^\s@]+@[^\s@]+\.[^\s@]+|\w+://\S+|[A-Z]{2}\d{2}[A-Z0-9 ]{10,32}"
)


@attrs.frozen
class _Piece:
    """One value with its name."""

    field: str
    head: tuple[str, ...]
    """Its visible parts, none of which is ever cut."""
    tail: tuple[str, ...] = ()
    """Its end; empty: `head` has all of it."""
    is_text: bool = False
    """It may be cut; then it is in quotes."""
    has_end: bool = False
    """If cut, its end is shown, too."""

    def shown(self, room: int) -> str | None:
        """Return it in at most `room` cells; None: there is not enough room."""
        if not self.is_text:
            (value,) = self.head
            digits = f"⟦{len(value):,} digits⟧"  # only texts and numbers are long
            wholes = (f"{self.field}={each}" for each in (value, digits))
            return next((whole for whole in wholes if _cells(whole) <= room), None)
        left = room - _cells(self.field) - 1
        text = f'"{"".join(self.head)}"'
        if not self.tail and _cells(text) <= left:
            return f"{self.field}={text}"
        left = min(left, _TEXT_CELLS)
        if left < _TEXT_CELLS_MIN:
            return None
        if not self.has_end:
            return f'{self.field}="{_first(self.head, left - 3)}"…'
        ending = _first(reversed(self.tail or self.head), (left - 5) // 2, is_reversed=True)
        begins = _first(self.head, left - 5 - _cells(ending))
        return f'{self.field}="{begins}"…"{ending}"'


@attrs.frozen
class ArgumentBrief:
    """The arguments on one line, as far as there is room."""

    pieces: tuple[_Piece, ...]
    count: int
    """Of all values."""

    def fitted(self, cells: int) -> str:
        """Return them in at most `cells` cells, the most important first, and the rest's count."""
        noun = "argument" if self.count == 1 else "arguments"
        counted = f"{self.count:,} {noun}"
        candidates = [self._fitted(cells, missing) for missing in (", +{:,} more", " +{:,}", " …")]
        text, shown = max(
            candidates, key=lambda each: each[1]
        )  # the first of those that show equally many
        if shown:
            return text
        return counted if len(counted) <= cells else "…"

    def _fitted(self, cells: int, missing: str) -> tuple[str, int]:
        """Return as many of them as there is room for, and their number."""
        text = ""
        shown = 0
        has_texts = True
        for piece in self.pieces:
            if piece.is_text and not has_texts:
                continue
            before = f"{text}, " if text else ""
            left = self.count - shown - 1
            after = missing.format(left) if left else ""
            more = piece.shown(cells - _cells(before) - _cells(after))
            if more is not None:
                text, shown = f"{before}{more}", shown + 1
            elif not piece.is_text:
                has_texts = False  # texts take no room where a number has none
        if shown < self.count:
            text += missing.format(self.count - shown)
        return text, shown


def argument_brief(arguments: Any) -> ArgumentBrief:
    """Return the brief of plain JSON: amounts, then recipients, then the rest, texts last."""
    found = sorted(leaves(arguments, ()), key=lambda leaf: len(leaf[0]))
    ranked = sorted(found[:_RANKED_MAX], key=lambda leaf: _rank(*leaf))
    return ArgumentBrief(tuple(_piece(*leaf) for leaf in ranked[:_PIECES_MAX]), len(found))


def call_brief(name: str, arguments: Any, *, cells: int = BRIEF_CELLS) -> str:
    """Return a call on one line of at most `cells` cells, or as few as its name needs."""
    shown = call_name(name, cells=max(_NAME_CELLS_MIN, min(NAME_CELLS, cells // 2)))
    if arguments == {}:
        return f"{shown}()"
    return f"{shown}({argument_brief(arguments).fitted(cells - _cells(shown) - 2)})"


def call_name(name: str, *, cells: int = NAME_CELLS) -> str:
    """Return the name of a call; in quotes if it could be read as more than a name."""
    if not _BARE_NAME.fullmatch(name):
        return _quoted(name, cells)
    return name if len(name) <= cells else f"{name[: cells - 1]}…"


def argument_name(name: str) -> str:
    """Return the name of an argument; in quotes if it could be read as more than a name."""
    is_bare = _BARE_FIELD.fullmatch(name) and len(name) <= _FIELD_CELLS
    return name if is_bare else _quoted(name, _FIELD_CELLS)


# ---


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield each leaf value with its path."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif path or value != {}:
        yield path, value


def _rank(path: Path, value: Any) -> tuple[int, int, float]:
    """Return its rank: amounts, numbers of the call itself, recipients, the rest, texts."""
    words = {word.lower() for word in _WORDS.findall(_last_name(path))}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_amount = is_number or _is_amount_text(value)
    is_named = not words.isdisjoint(_AMOUNT_NAMES)
    depth = len(path)
    if is_named and is_number:
        return 0, depth, -abs(value)  # of many the largest, which matters most
    if is_named and (is_amount or _is_short_text(value)):
        return 0, depth, 0.0
    if is_amount and depth == 1:
        return 1, depth, 0.0
    if _is_recipient(words, value):
        return 2, depth, 0.0
    if is_amount:
        return 3, depth, 0.0
    return (5 if isinstance(value, str) else 4), depth, 0.0


def _is_recipient(words: set[str], value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return not words.isdisjoint(_RECIPIENT_NAMES) or bool(_RECIPIENT_TEXT.fullmatch(value[:400]))


def _last_name(path: Path) -> str:
    return next((step[:200] for step in reversed(path) if isinstance(step, str)), "")


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _AMOUNT_CHARS_MAX // 2


def _is_amount_text(value: Any) -> bool:
    is_short = isinstance(value, str) and len(value) <= _AMOUNT_CHARS_MAX
    return is_short and bool(_AMOUNT_TEXT.fullmatch(value))


def _piece(path: Path, value: Any) -> _Piece:
    field = _field(path)
    if not isinstance(value, str):
        return _Piece(field, (canonical(value),))
    kept = 4 * _TEXT_CELLS
    head = tuple(islice(_atoms(value), kept + 1))
    if _rank(path, value)[0] in (0, 1, 3) and _is_amount_text(value):
        return _Piece(field, (f'"{"".join(head)}"',))
    has_end = _rank(path, value)[0] in (0, 2)
    if len(head) <= kept:
        return _Piece(field, head, is_text=True, has_end=has_end)
    tail = tuple(_atoms(value[-_TEXT_CELLS:]))
    return _Piece(field, head[:kept], tail, is_text=True, has_end=has_end)


def _field(path: Path) -> str:
    """Return a path as people read it, short; an ambiguous name is in quotes."""
    steps = [_step(step, is_first=at == 0) for at, step in enumerate(path)]
    text = "".join(steps)
    if len(text) > 2 * _FIELD_CELLS:
        text = f"{steps[0]}…{steps[-1]}"
    return text or WHOLE


def _step(step: str | int, *, is_first: bool) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    name = argument_name(step)
    if name != step:
        return f"[{name}]"
    return name if is_first else f".{name}"


def _quoted(text: str, cells: int) -> str:
    atoms = tuple(islice(_atoms(text), cells + 1))
    whole = f'"{"".join(atoms)}"'
    return whole if _cells(whole) <= cells else f'"{_first(atoms, cells - 3)}"…'


def _atoms(text: str) -> Iterator[str]:
    r"""Yield a text for display inside quotes, in parts that are never cut.

    A run of blanks is one part with their number.
    """
    for match in _TOKEN.finditer(text):
        if match[1]:
            yield f"⟦{len(match[1]):,} blanks⟧"
            continue
        for char in unglued(match[0]):
            shown = json.dumps(char, ensure_ascii=False)[1:-1]
            yield f"\\{char}" if char in _LOOKALIKES else safe(shown)


def _first(atoms: Iterable[str], cells: int, *, is_reversed: bool = False) -> str:
    """Return as many parts as there is room for."""
    taken: list[str] = []
    for atom in atoms:
        cells -= _cells(atom)
        if cells < 0:
            break
        taken.append(atom)
    return "".join(reversed(taken) if is_reversed else taken)


def _cells(text: str) -> int:
    """Return the most cells that a terminal may use for it."""
    return (
        len(text)
        if text.isascii()
        else sum(1 if char < "\u0300" or char in "…⟦⟧" else 2 for char in text)
    )
