"""structlog without rich, which it imports if it is there: a tenth of the time `cortex up` takes.

It uses rich for colourful tracebacks only; ours are plain, see `cortex.cli.screen.logs`. So this
has to be the first import of structlog.
"""

import sys

_HIDDEN = "rich" not in sys.modules
if _HIDDEN:  # None makes its import fail
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if _HIDDEN:
    del sys.modules["rich"]

__all__ = ["structlog"]
