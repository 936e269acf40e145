"""What the cursor is on, as people take it elsewhere: to a chat, an editor, a shell."""

from collections.abc import Awaitable, Callable

import attrs


@attrs.frozen(kw_only=True)
class Resource:
    """Something that has a name of its own; what it has not is ""."""

    id: str = ""
    command: str = ""
    """What one would type to see it."""
    document: Callable[[], Awaitable[object]] | None = None
    """Reads all of it; plain values, ids and instants. Raises `CortexError`s."""
