"""The target of a fault: a drawn place, or the next one after it that has a pod."""

import random
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from chaos.cluster.pods import Pod
from chaos.cluster.stage import Stage
from chaos.windows import SOUGHT, Window

PLACES: Final = 60
"""A place is drawn from this many, and mapped to the existing ones."""
AIMED_SHARE: Final = 0.7
"""Of the faults that can be aimed; the others hit at random."""
NO_TARGET: Final[dict[str, Any]] = {"missed": "there is no living pod to hit", "windows": []}

_OWNED: Final = """
    SELECT j.id FROM cortex.job j JOIN cortex.pod p ON p.id = j.pod_id
    WHERE j.status = 'RUNNING' AND p.name = $1
"""


def draw_place(dice: random.Random) -> int:
    """Draw a place, whatever the number of pods will be."""
    return dice.randrange(PLACES)


def draw_aim(dice: random.Random) -> str | None:
    """Draw the window that a fault is aimed at, or none."""
    return dice.choice(SOUGHT).value if dice.random() < AIMED_SHARE else None


def aim_of(detail: dict[str, Any]) -> Window | None:
    """The drawn window."""
    return None if detail.get("aim") is None else Window(detail["aim"])


def candidates(
    stage: Stage, detail: dict[str, Any], *, fits: Callable[[Pod], bool] = lambda _: True
) -> list[Pod]:
    """The living pods that a fault may hit, from the drawn place on."""
    places = stage.pods_kept.places
    ordered = [places[(detail["place"] + step) % len(places)].pod for step in range(len(places))]
    return [pod for pod in ordered if pod is not None and fits(pod)]


async def jobs_of(stage: Stage, pod: Pod) -> list[UUID]:
    """The jobs that the record says the pod runs. Raises what asking the server raises."""
    return [row["id"] for row in await stage.postgres.sql(_OWNED, pod.record)]


def hit(stage: Stage, detail: dict[str, Any], pod: Pod) -> dict[str, Any]:
    """Which pod was hit, and the drawn place if that was empty."""
    places = stage.pods_kept.places
    drawn = places[detail["place"] % len(places)].name
    instead = {} if pod.name == drawn else {"instead_of": drawn}
    return {"pod": pod.name, "life": pod.life, **instead}
