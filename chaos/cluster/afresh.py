"""A pod in an interpreter of its own: for an environment that only a new one follows.

    python -m chaos.cluster.afresh ARGUMENT…      as `python -m cortex ARGUMENT…`

Forked from the fork server, it still dies with it.
"""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "cortex", *sys.argv[1:]])  # noqa: S606
