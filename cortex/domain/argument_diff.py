"""The changes of a person to the arguments of a call, harmless to show."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from cortex.domain.canonical import Path, canonical, field_of
from cortex.domain.safe import safe


@attrs.frozen(kw_only=True)
class ArgumentChange:
    """One difference. Both sides are JSON in which nothing is hidden; None: absent."""

    field: str
    old: str | None
    new: str | None


def changes(old: Any, new: Any) -> list[ArgumentChange]:
    """Return every difference of two JSON values, types included: 1, 1.0 and true differ.

    Raises `InvalidValueError` for what is no JSON.
    """
    return list(_changes(old, new, ()))


def _changes(old: Any, new: Any, path: Path) -> Iterator[ArgumentChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _change(old.get(name, _ABSENT), new.get(name, _ABSENT), (*path, name))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, now = (each[index] if index < len(each) else _ABSENT for each in (old, new))
            yield from _change(was, now, (*path, index))
    elif canonical(old) != canonical(new):
        yield ArgumentChange(field=field_of(path), old=_shown(old), new=_shown(new))


_ABSENT: Final = object()


def _change(old: Any, new: Any, path: Path) -> Iterator[ArgumentChange]:
    if old is _ABSENT or new is _ABSENT:
        yield ArgumentChange(field=field_of(path), old=_shown(old), new=_shown(new))
    else:
        yield from _changes(old, new, path)


def _shown(value: Any) -> str | None:
    return None if value is _ABSENT else safe(canonical(value))
