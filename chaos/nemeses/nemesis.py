"""A nemesis: something that can be done to a running cluster, and undone."""

import random
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage


@frozen(kw_only=True)
class Fault:
    """One line of a run's plan, drawn from the seed before the run starts."""

    number: int
    at_s: float
    """When it starts, since the start of the run's load."""
    nemesis: str
    for_s: float
    """How long it holds until it is healed; 0 if it is over at once."""
    detail: dict[str, Any]
    """What was drawn: which pod (its place among those that run then), which way, how slow."""


class Nemesis(Protocol):
    """One kind of fault; each is a module with one instance in `chaos.nemeses.ALL`."""

    name: str
    """As given to `--faults`."""
    fault: str
    """Its number in the list of faults that must be survived, such as `F1`."""
    weight: int
    """How often it is drawn relative to the others at intensity 1."""

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        """Draw its duration and detail from the dice alone, so that a seed repeats."""
        ...

    async def inject(self, stage: "Stage", fault: Fault) -> dict[str, Any]:
        """Cause it, hold it, heal it; return what it hit, for the history.

        Heals also when cancelled. Key `windows` of the result lists the `chaos.windows.Window`s
        that the fault hit.
        """
        ...
