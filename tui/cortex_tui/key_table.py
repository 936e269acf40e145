"""The key bindings of a session: the table in `keys` with the changes of `keys.toml`."""

import difflib
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from cortex.domain.errors import UsageError
from cortex_tui.internals import key_of
from cortex_tui.key import EVERYWHERE, GROUPS, Key
from cortex_tui.keys import KEYS
from cortex_tui.model.question import YES

_LETTERS_MAX: Final = 0x250
"""The first character after those of European keyboards."""
_SHOWN: Final = {
    "slash": "/",
    "full_stop": ".",
    "question_mark": "?",
    "colon": ":",
    "at": "@",
    "escape": "esc",
    "down": "↓",
    "up": "↑",
    "asterisk": "*",
    "plus": "+",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "ctrl+backslash": "ctrl+\\",
    "left": "←",
    "right": "→",
}


_NAMED: Final = {
    key_of(sign): sign for sign in map(chr, range(ord("!"), _LETTERS_MAX)) if sign.isprintable()
}
"""Characters that Textual knows by name."""


def shown(key: str) -> str:
    """Return a key as shown to people: a character as itself, also after `ctrl+`."""
    if key in _SHOWN:
        return _SHOWN[key]
    modifiers, plus, name = key.rpartition("+")
    return f"{modifiers}{plus}{_SHOWN.get(name) or _NAMED.get(name, name)}"


@attrs.frozen(eq=False)
class KeyTable:
    """The key bindings of a session: the table with the changes of `keys.toml`.

    Compared by identity, so that footers can be cached by it.
    """

    keys: tuple[Key, ...] = KEYS

    def of(self, screen: str) -> Iterator[Key]:
        """Yield the keys of a screen, in the order of the groups."""
        for group in GROUPS:
            yield from (key for key in self.keys if key.group == group and key.is_on(screen))

    def bindings(self, screen: str) -> list[Binding]:
        return [
            Binding(",".join(key.keys), key.action, key.label, id=key.id, show=False)
            for key in self.of(screen)
        ]

    def named(self, name: str) -> Key:
        return next(key for key in self.keys if key.id == name)


def read_keys(path: Path) -> KeyTable:
    """Read `keys.toml`: each line sets one key, or several, for an id. The file may be missing.

    Raises `UsageError` that names the file and the id on the line.
    """
    try:
        wanted = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return KeyTable()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        return remapped(wanted)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def remapped(wanted: Mapping[str, object]) -> KeyTable:
    """Return the table with changed keys. Raises `UsageError` for ambiguous ones."""
    changed = {name: _keys(name, value) for name, value in wanted.items()}
    known = {key.id for key in KEYS}
    for name in changed:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"there is no action {name!r}", hint=hint)
    keys = tuple(attrs.evolve(key, keys=changed.get(key.id, key.keys)) for key in KEYS)
    for clash in clashes(keys):
        raise UsageError(clash, hint="give one of them another key")
    return KeyTable(keys)


def clashes(keys: Sequence[Key]) -> Iterator[str]:
    """Yield conflicts: one key twice on a screen, or acting keys that differ only by case."""
    for number, one in enumerate(keys):
        for other in keys[number + 1 :]:
            if not (EVERYWHERE in (*one.where, *other.where) or set(one.where) & set(other.where)):
                continue
            if twice := set(one.keys) & set(other.keys):
                yield f"{shown(min(twice))} would be both {one.id} and {other.id}"
            elif one.is_acting and other.is_acting:
                lower = {key.lower() for key in one.keys} & {key.lower() for key in other.keys}
                if lower:
                    yield f"{one.id} and {other.id} would differ by case only: {min(lower)}"


def _keys(name: str, value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    keys = [_key(key.strip()) for key in given if isinstance(key, str) and key.strip()]
    if not keys or len(keys) != len(given):
        raise UsageError(f"{name} is not a key, or a list of keys", hint='such as "ctrl+k"')
    for key in keys:
        if "," in key:
            raise UsageError(f"{name} is not one key: {key!r}", hint='a list: ["j", "down"]')
        if key == YES:
            raise UsageError(f"{name} cannot be {YES}: it answers questions, and nothing else")
        if not _is_known(key):
            raise UsageError(f"{name}: no key is called {key!r}", hint='such as "ctrl+k" or "f5"')
    return tuple(keys)


def _key(text: str) -> str:
    return key_of(_SIGNS.get(text, text))


def _is_known(key: str) -> bool:
    *modifiers, name = key.split("+") if len(key) > 1 else [key]
    is_named = len(name) == 1 or name in _NAMES
    return is_named and _MODIFIERS.issuperset(modifiers)


_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_CHARACTERS: Final = (unicodedata.name(chr(code), "") for code in range(_LETTERS_MAX))
_NAMES: Final = (
    {key.value.rpartition("+")[2] for key in Keys}
    | {*KEY_NAME_REPLACEMENTS.values()}
    | {name.lower().replace("-", "_").replace(" ", "_") for name in _CHARACTERS if name}
)
_SIGNS: Final = {sign: name for name, sign in _SHOWN.items()}
