"""What runs beside the app in the same terminal: the pod of `cortex up --tui`."""

from pathlib import Path
from typing import Protocol


class PodBeside(Protocol):
    """A process of its own: each of the two may end and the other go on."""

    name: str
    log: Path
    """Where its logs go."""
    http: str | None
    """Where it serves the API, if it does."""

    def ended(self) -> str | None:
        """Say how it ended, in a few words; None: it runs."""
        ...

    def drain(self) -> None:
        """Let it end: its jobs go on elsewhere after their next step."""
        ...

    def signalled(self, number: int) -> None:
        """Hear of a signal that this process got."""
        ...
