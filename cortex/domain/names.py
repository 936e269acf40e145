"""Names of people: two that an eye can confuse are not both given away.

By the rules of Unicode TS 39, with the tables of `confusable_homoglyphs`: each character is
replaced by the one that it looks like, and a name may not mix scripts, except those that are
written together in Chinese, Japanese and Korean. Case and blanks do not count.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from cortex.domain.errors import UsageError
from cortex.domain.safe import safe

NAME_MAX: Final = 100
_BLANKS: Final = re.compile(r"\s+")
_NO_SCRIPT: Final = frozenset({"COMMON", "INHERITED", "Unknown"})
_TOGETHER: Final = (
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
    frozenset({"LATIN", "HAN", "HANGUL"}),
)
"""Scripts of one writing system."""
_RESERVED: Final = re.compile(r"[()]")
"""They enclose labels beside names."""


def check_name(name: str) -> None:
    """Raise `UsageError` for a name that no person may have."""
    if not 1 <= len(name) <= NAME_MAX or name != name.strip():
        raise UsageError(f"{safe(name)[:NAME_MAX]!r} is not a name of 1 to {NAME_MAX} characters")
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} contains invisible characters")
    if _RESERVED.search(name):
        raise UsageError(f"{name!r} contains a parenthesis", hint="these enclose labels, see --as")
    scripts = scripts_of(name)
    if len(scripts) > 1 and not any(scripts <= each for each in _TOGETHER):
        mixed = " and ".join(sorted(each.capitalize() for each in scripts))
        raise UsageError(
            f"{name!r} mixes letters of {mixed}: it can be read as another name",
            hint="write it in one script",
        )


def scripts_of(name: str) -> frozenset[str]:
    """Return the scripts of the letters of a name, as Unicode calls them."""
    if name.isascii():
        return frozenset({"LATIN"})
    from confusable_homoglyphs.categories import (  # noqa: PLC0415 -- its tables take 60 ms
        unique_aliases,
    )

    return frozenset(unique_aliases(unicodedata.normalize("NFKC", name))) - _NO_SCRIPT


def skeleton(name: str) -> str:
    """Return the common form of all names that look like this one; not for people to read."""
    once = _replaced(unicodedata.normalize("NFKC", name).casefold())
    return _BLANKS.sub(" ", _replaced(once.casefold())).strip()


def _replaced(text: str) -> str:
    tables = _lookalikes()
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFD", "".join(_stands_for(each, tables) for each in decomposed))


def _stands_for(letter: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return what a letter looks like: each is listed with its original, that with all of them."""
    if letter == "i":  # written as I, it looks like l
        return "l"
    alike = tables.get(letter, ())
    if len(alike) != 1:
        return letter
    original = str(alike[0]["c"])
    is_pair = len(tables.get(original, ())) == 1
    return min(letter, original) if is_pair and len(original) == 1 else original


@cache
def _lookalikes() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    from confusable_homoglyphs.confusables import (  # noqa: PLC0415 -- likewise
        confusables_data,
    )

    tables: Mapping[str, Sequence[Mapping[str, Any]]] = confusables_data
    return tables
