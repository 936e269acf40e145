"""A pod in its own interpreter, for an environment that a fork cannot follow.

    python -m chaos.cluster.afresh ARGUMENT…   as `python -m cortex ARGUMENT…`

The fork server starts it, so it still dies with the fork server.
"""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "cortex", *sys.argv[1:]])  # noqa: S606
