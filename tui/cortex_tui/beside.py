"""What runs next to the app in the same terminal: the pod of `cortex up --tui`."""

from pathlib import Path
from typing import Protocol


class PodBeside(Protocol):
    """A separate process: it and the app can end independently."""

    name: str
    log: Path
    """The file of its logs."""
    http: str | None
    """The address of its HTTP API, if it has one."""

    def ended(self) -> str | None:
        """Return how it ended, in a few words; None while it runs."""
        ...

    def drain(self) -> None:
        """Drain it: other pods continue its jobs after their current step."""
        ...

    def signalled(self, number: int) -> None:
        """Take notice of a signal that this process received."""
        ...
