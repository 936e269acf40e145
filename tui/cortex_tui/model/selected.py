"""The object under the cursor: its fields, and the forms that people copy."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import attrs

from cortex.view.resource import Shape


@attrs.frozen(kw_only=True)
class Selected:
    """An object with an id; forms that it lacks are ""."""

    id: str = ""
    key: Hashable = attrs.Factory(lambda self: self.id, takes_self=True)
    """Identifies it among the rows of its list."""
    command: str = ""
    """The command that shows it."""
    shape: Shape[Any] | None = None
    """Its table of fields; None: it is not a row of a resource."""
    row: Any = None
    """The row of that table; None: not read yet."""
    read: Callable[[], Awaitable[Any]] | None = None
    """Reads the row, where the list has less; None: no longer there. Raises `CortexError`s."""
    value: str = ""
    """The exact value of the field under the cursor."""
    document: Callable[[], Awaitable[object]] | None = attrs.Factory(
        lambda self: None if self.row is None else self._fields, takes_self=True
    )
    """Reads the whole object as plain values, ids and times; the default is all fields of the row.

    Raises `CortexError`s.
    """

    async def _fields(self) -> object:
        return None if self.shape is None else self.shape.document(self.row)
