"""What runs next to the app in the same terminal: the pod of `cortex up --tui`."""

from pathlib import Path
from typing import Protocol


class PodBeside(Protocol):
    """A separate process: it and the app can end independently."""

    name: str
    log: Path
    """Where its logs go."""
    http: str | None
    """Where it serves the API, if it does."""

    def ended(self) -> str | None:
        """Return how it ended, in a few words; None while it runs."""
        ...

    def drain(self) -> None:
        """Drain it: other pods continue its jobs after their current step."""
        ...

    def signalled(self, number: int) -> None:
        """Take notice of a signal that this process received."""
        ...
