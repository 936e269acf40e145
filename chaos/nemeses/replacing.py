"""A pod is killed, and the next one at its place gets an environment of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define

from chaos.cluster.pods import Place, Pod
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.target import candidates

STARTED_WITHIN_S: Final = 10.0


@define(eq=False)
class Replacement:
    """The pod that came after another one."""

    pod: Pod | None
    """None if none came in time."""
    stays: bool = False
    """Whether it lives on afterwards, because its environment does no more harm."""


def free_places(stage: Stage, detail: dict[str, Any]) -> list[tuple[Place, Pod]]:
    """The places at which no other nemesis replaces the pod, from the drawn one on."""
    by_name = {place.name: place for place in stage.pods_kept.places if not place.is_taken}
    pods = candidates(stage, detail)
    return [(by_name[pod.name], pod) for pod in pods if pod.name in by_name]


@asynccontextmanager
async def replaced(
    place: Place, before: Pod, environment: dict[str, str]
) -> AsyncIterator[Replacement]:
    """Kill a pod and wait for the next one; on leaving the block, that one is killed, too."""
    place.is_taken = True
    place.next_environment = environment
    replacement = Replacement(pod=None)

    def has_come() -> bool:
        return place.lives[-1] is not before

    try:
        before.kill()
        await until(has_come, within_s=STARTED_WITHIN_S)
        replacement.pod = place.lives[-1] if has_come() else None
        yield replacement
    finally:
        place.next_environment = {}
        place.is_taken = False
        after = place.lives[place.lives.index(before) + 1 :][:1]
        for pod in () if replacement.stays else after:
            pod.kill()
