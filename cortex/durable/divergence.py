"""Describes briefly how the present input of a step differs from the recorded one."""

from typing import Any, Final

from cortex.domain.argument_check import ArgumentChange, changes
from cortex.domain.canonical import parse
from cortex.domain.errors import InvalidValueError
from cortex.durable.shortened_inputs import same_value

CHANGES_MAX: Final = 3
CHARS_MAX: Final = 80
"""Of each side of a change."""
BEFORE_CHARS: Final = 20
"""Shown before the first difference, in long values."""


def difference(old: str, new: str) -> str:
    """Describe the difference of two kept inputs, value by value: `number: 1 → 2`.

    Empty if there is none: secrets are not kept.
    """
    try:
        was, now = parse(old), parse(new)
    except InvalidValueError:  # so many values that the whole was cut
        return _shown(ArgumentChange(field="input", old=old, new=new)) if old != new else ""
    if isinstance(was, dict) and isinstance(now, dict):
        same = {name for name in was.keys() & now.keys() if same_value(was[name], now[name])}
        was, now = _without(was, same), _without(now, same)
    parts = [_shown(each) for each in changes(was, now)]
    more = len(parts) - CHANGES_MAX
    parts[CHANGES_MAX:] = [f"and {more} more"] if more > 0 else []
    return ", ".join(parts)


def renamed(old: str, new: str) -> dict[str, str] | None:
    """Return the old names by the new ones, if two kept inputs differ in names only.

    None if they differ otherwise, also where it is open which value got which name.
    """
    try:
        was, now = parse(old), parse(new)
    except InvalidValueError:  # so many values that the whole was cut
        return None
    if not (isinstance(was, dict) and isinstance(now, dict) and len(was) == len(now)):
        return None
    if not all(same_value(was[name], now[name]) for name in was.keys() & now.keys()):
        return None
    names: dict[str, str] = {}
    for name in now.keys() - was.keys():
        fitting = [each for each in was.keys() - now.keys() if same_value(was[each], now[name])]
        if len(fitting) != 1 or fitting[0] in names.values():
            return None
        names[name] = fitting[0]
    return names or None


def is_renamed(old: str, new: str) -> bool:
    """Return whether two JSON objects that were kept whole differ in names only."""
    names = renamed(old, new)
    if names is None:
        return False
    now = {names.get(name, name): value for name, value in parse(new).items()}
    return bool(parse(old) == now)


def _without(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _shown(change: ArgumentChange) -> str:
    old, new = change.old, change.new
    if old is None or new is None or max(len(old), len(new)) <= CHARS_MAX:
        return f"{change.field}: {_short(old)} → {_short(new)}"
    pairs = zip(old, new, strict=False)
    at = next((n for n, (was, now) in enumerate(pairs) if was != now), min(len(old), len(new)))
    begin = max(0, at - BEFORE_CHARS)
    if begin == 0:
        return f"{change.field}: {_short(old)} → {_short(new)}"
    return f"{change.field} at character {at:,}: …{_short(old[begin:])} → …{_short(new[begin:])}"


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}…"
