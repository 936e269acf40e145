"""The object under the cursor in the forms that people copy: to a chat, an editor, a shell."""

from collections.abc import Awaitable, Callable

import attrs


@attrs.frozen(kw_only=True)
class Selected:
    """An object with an id; forms that it lacks are ""."""

    id: str = ""
    command: str = ""
    """The command that shows it."""
    document: Callable[[], Awaitable[object]] | None = None
    """Reads the whole object as plain values, ids and times. Raises `CortexError`s."""
