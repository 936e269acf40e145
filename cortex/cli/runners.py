"""`cortex runners`: background work, its last runs and its health."""

from typing import Final

from cortex.cli.listing import list_all
from cortex.cli.options import Group
from cortex.view.resources.runners import RUNNERS

runners = Group(
    "runners",
    help=(
        "List background work.\n\nEach runner does one thing for the whole system, such as "
        "resuming due retries. Pods run them in loops; `cortex tick` runs each once."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.runners:ls", "List runners and their last runs.")},
    },
)

ls: Final = list_all(
    RUNNERS,
    help=(
        "List runners by name: the last run in any process, and totals.\n\nA runner is late when "
        "it has not succeeded for five of its intervals."
    ),
)
