"""Names in asyncio that trio-asyncio 0.16 uses and Python 3.14 has renamed or removed.

Import it before trio_asyncio. Cortex uses its `current_loop`, and neither policies nor watchers.
"""

import asyncio
from typing import Final

POLICY: Final = "BaseDefaultEventLoopPolicy"
WATCHER: Final = "AbstractChildWatcher"


def restore() -> None:
    """Give asyncio the names that it lacks."""
    if not hasattr(asyncio.events, POLICY):
        setattr(asyncio.events, POLICY, getattr(asyncio.events, f"_{POLICY}"))
    if not hasattr(asyncio, WATCHER):
        setattr(asyncio, WATCHER, object)


restore()
