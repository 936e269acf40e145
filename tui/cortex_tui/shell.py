"""Quotes commands for bash, zsh or ksh, because people copy them and terminals paste them.

A shell treats a pasted control character as a key, even within quotes: it could delete the text
before it and run the text behind it. So each one is written as an escape.
"""

import shlex
from collections.abc import Iterable


def line(words: Iterable[str]) -> str:
    """Return words as a line without invisible characters."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    r"""Return a quoted word; unprintable bytes appear as `\033`."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogatepass"))
