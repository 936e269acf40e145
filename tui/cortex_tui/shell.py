"""Commands as one types them in bash, zsh or ksh: people copy them, and a terminal pastes them.

A control character in a name is a key to the shell that it is pasted into, also within quotes: it
would delete what stands before it, and enter what stands behind it. So each is written out.
"""

import shlex
from collections.abc import Iterable


def line(words: Iterable[str]) -> str:
    """Return words as a line that holds no character which nobody would see."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    r"""Return a word as a shell reads it; what cannot be printed as `\033`, byte by byte."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogatepass"))
