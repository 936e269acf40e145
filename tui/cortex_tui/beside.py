"""What runs beside the app in the same terminal: the pod of `cortex up --tui`."""

from pathlib import Path
from typing import Protocol


class PodBeside(Protocol):
    """A process of its own: each of the two may end and the other go on."""

    name: str
    log: Path
    """Where its logs go."""

    def ended(self) -> str | None:
        """Say how it ended, in a few words; None: it runs."""
        ...

    def drain(self) -> None:
        """Tell it to end: its jobs go on elsewhere; told again, it hands them back at once."""
        ...
