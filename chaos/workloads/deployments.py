"""The deployments of a run: which release each place gets when, and the jobs of both releases.

Each release is rolled out place by place, and taken back; at the end half of the places run each of
them, so that every job finds a pod whose code fits it.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from chaos.cluster.pods import Release
from chaos.nemeses.drain import ends, next_is_ready
from chaos.workloads.order import Order
from chaos.workloads.program import Op

if TYPE_CHECKING:
    from chaos.cluster.pods import Place
    from chaos.cluster.stage import Stage

OLD: Final = Release(app="chaos.workloads.deployed_old", version="old")
NEW: Final = Release(app="chaos.workloads.deployed_new", version="new")
PREFIX: Final = "deploy_"
"""Of the job types."""
TAKES_MS: Final = 30
"""Of each step: long enough that many jobs are in flight when a pod leaves."""
FAULTS: Final = ("kill", "point")
"""Beside the deployments, unless others are named."""
FAULTS_PER_S: Final = 0.3
"""At intensity 1: more would leave no pod alive for long enough to be replaced."""


CODE_WAIT_S: Final = 86_400.0
"""Longer than any run: in none of them may a job fail because its code is away."""


@frozen(kw_only=True)
class Change:
    """One job type, and the arguments that only one release takes."""

    job_type: str
    old: dict[str, Any] = field(factory=dict)
    """Arguments that clients of the old release give, besides the key."""
    new: dict[str, Any] = field(factory=dict)


CHANGES: Final = (
    Change(job_type="deploy_added", new={"site": "main"}),
    Change(job_type="deploy_removed", old={"first": True}),
    Change(job_type="deploy_effect"),
    Change(job_type="deploy_step"),
    Change(job_type="deploy_sleep"),
    Change(job_type="deploy_patched"),
)
ONLY_OLD: Final = "deploy_old_type"
ONLY_NEW: Final = "deploy_new_type"


@frozen(kw_only=True)
class Rollout:
    """The places from `first` on get a release, one after another."""

    at_s: float
    release: Release
    first: int = 0


def draw_rollouts(*, duration_s: float, pods: int) -> tuple[Rollout, ...]:
    """Return three: of the new release, of the old one, of the new one at half of the places."""
    return (
        Rollout(at_s=0.15 * duration_s, release=NEW),
        Rollout(at_s=0.50 * duration_s, release=OLD),
        Rollout(at_s=0.85 * duration_s, release=NEW, first=pods - pods // 2),
    )


def draw_orders(seed: int, *, count: int, duration_s: float) -> tuple[Order, ...]:
    """Return the jobs, as clients of both releases submit them at any time."""
    dice = random.Random(f"deployed jobs of {seed}")
    orders = []
    for number, at_s in enumerate(sorted(dice.uniform(0, duration_s) for _ in range(count))):
        key, is_new = f"s{seed}-j{number}", dice.random() < 0.5
        change = dice.choice((*CHANGES, None))
        if change is None:
            job_type, more = (ONLY_NEW if is_new else ONLY_OLD), {}
        else:
            job_type, more = change.job_type, (change.new if is_new else change.old)
        payload = {"key": key, **more}
        orders.append(Order(at_s=at_s, key=key, job_type=job_type, payload=payload))
    return tuple(orders)


def kind_of(key: str) -> Op:
    """Return how the world outside treats the job's effect."""
    return Op.IDEMPOTENT if int(key.rpartition("j")[2]) % 2 else Op.RECONCILABLE


def account_of(key: str) -> str:
    """Return the ledger account that the job pays into, once."""
    return f"{kind_of(key)}:{key}:0"


async def roll_out(stage: "Stage", rollouts: Sequence[Rollout]) -> None:
    """Carry out each rollout when it is due, while faults kill pods beside it."""
    began_s = stage.history.now_s
    for rollout in rollouts:
        await asyncio.sleep(began_s + rollout.at_s - stage.history.now_s)
        for place in stage.pods_kept.places[rollout.first :]:
            await _replace(stage, place, rollout.release)


async def _replace(stage: "Stage", place: "Place", release: Release) -> None:
    """Give a place a release: its pod drains, and the next one has it."""
    before, place.release = place.pod, release
    version = release.version
    stage.history.add(place.name, "rollout", to=version)
    if before is not None:
        before.cont()
        before.term()
        if not await ends(stage, before):
            before.kill()
        await next_is_ready(stage, before)
