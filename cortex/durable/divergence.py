"""Describes briefly how the present input of a step differs from the recorded one."""

from typing import Final

from cortex.domain.argument_check import changes
from cortex.domain.canonical import parse

CHANGES_MAX: Final = 3
CHARS_MAX: Final = 80
"""Of each side of a change."""
BEFORE_CHARS: Final = 20
"""Shown before the first difference, in texts that were cut."""


def difference(old: str, new: str) -> str:
    """Describe the difference of two recorded inputs: JSON texts, or the beginnings of such."""
    try:
        differences = changes(parse(old), parse(new))
    except ValueError:  # cut
        return _of_texts(old, new)
    parts = [f"{each.field}: {_short(each.old)} → {_short(each.new)}" for each in differences]
    more = len(parts) - CHANGES_MAX
    parts[CHANGES_MAX:] = [f"and {more} more"] if more > 0 else []
    return ", ".join(parts) or "only in secrets, which are not kept"


def _of_texts(old: str, new: str) -> str:
    pairs = zip(old, new, strict=False)
    at = next((n for n, (was, now) in enumerate(pairs) if was != now), min(len(old), len(new)))
    if old == new:
        return "behind the part that is kept"
    begin = max(0, at - BEFORE_CHARS)
    was, now = (_short(text[begin : begin + CHARS_MAX]) for text in (old, new))
    return f"at character {at}: …{was} → …{now}"


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}…"
