"""What a nemesis is: something that can be done to a running cluster, and undone."""

import random
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage


@frozen(kw_only=True)
class Fault:
    """One line of a run's plan, drawn from the seed before the run begins."""

    number: int
    at_s: float
    """When it begins, since the start of the run's load."""
    nemesis: str
    for_s: float
    """How long it holds until it is healed; 0 for what is over at once."""
    detail: dict[str, Any]
    """What was drawn: which pod (its place among those that run then), which way, how slow."""


class Nemesis(Protocol):
    """One kind of fault; each is a module with an instance of its own in `chaos.nemeses.ALL`."""

    name: str
    """As `--faults` takes it."""
    fault: str
    """Its number in the list of what must be survived, such as `F1`."""
    weight: int
    """How often it is drawn beside the others at intensity 1."""

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        """Draw how long it holds and its detail: from the dice alone, so that a seed repeats."""
        ...

    async def inject(self, stage: "Stage", fault: Fault) -> dict[str, Any]:
        """Do it, hold it, heal it; return what it met, for the history.

        Heals also when it is cancelled. The key `windows` of its answer lists what of
        `chaos.windows.Window` the fault hit.
        """
        ...
