"""Takes the receipt of a time-out: what is known of it, and its leftovers on this machine's disk.

Bounded in time and in concurrency: an outage may time out ten thousand jobs in one second. What
could not be examined is a problem in the receipt, so that readers do not take it for clean.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
import trio
from trio.lowlevel import RunVar

from cortex.agent.workspace.artefacts import ArtefactScan, look_through
from cortex.agent.workspace.work_tree import work_tree_state
from cortex.domain.key_shapes import masked
from cortex.domain.timeouts import (
    PARTIAL_TEXT_MAX_BYTES,
    Interruption,
    TimeoutReceipt,
    WorkTree,
    clipped,
)
from cortex.durable.threads import limiter_of_run

EXAMINE_S: Final = 5.0
"""For everything; ending the processes of git may take a second more."""
CONCURRENT_MAX: Final = 8
"""Receipts taken at once; the others wait within their time limit."""


async def take_receipt(
    interruption: Interruption,
    *,
    workspace: Path,
    folder: Path | None,
    unix_ms: Callable[[], int],
) -> TimeoutReceipt:
    """Examine what a time-out left in the job's workspace and in the folder that it worked in.

    Raises nothing but `trio.Cancelled`. `folder` is None for a job that has no folder besides its
    workspace; `unix_ms` is this machine's clock, by which its files are stamped. The data folder,
    which contains the workspaces, is skipped if it lies in a user's work tree.
    """
    left_s = interruption.unsettled_s
    # Rounded up: a file written just before the last checkpoint does not count as later.
    started_ms = unix_ms() + 1 - 1000 * (interruption.step_elapsed_s if left_s is None else left_s)
    receipt = TimeoutReceipt(
        interruption=_bounded(interruption),
        step_started_at=datetime.fromtimestamp(started_ms / 1000, UTC),
        problem=f"its files could not be examined within {EXAMINE_S:g} seconds",
    )
    scan = ArtefactScan()
    trees: dict[str, WorkTree] = {}
    with trio.move_on_after(EXAMINE_S) as scope:
        async with _capacity():
            scan = await trio.to_thread.run_sync(
                lambda: look_through(workspace, since=receipt.step_started_at),
                abandon_on_cancel=True,
            )
            roots = scan.work_trees if folder is None else (folder, *scan.work_trees)
            for root in dict.fromkeys(roots):
                state = await work_tree_state(root, spared=data_of(workspace))
                if state is not None:
                    trees[state.root] = state
    is_cut = scope.cancelled_caught
    return attrs.evolve(
        receipt,
        artefacts=scan.artefacts,
        work_trees=tuple(trees.values()),
        problem=receipt.problem if is_cut else scan.problem,
    )


def data_of(workspace: Path) -> Path:
    """The data folder of the workspace `<data>/workspaces/<job>`."""
    return workspace.resolve().parents[1]


def _bounded(interruption: Interruption) -> Interruption:
    text = interruption.partial_text
    if text is None:
        return interruption
    return attrs.evolve(interruption, partial_text=clipped(masked(text), PARTIAL_TEXT_MAX_BYTES))


_limiter: RunVar[trio.CapacityLimiter] = RunVar("looks of receipts")


def _capacity() -> trio.CapacityLimiter:
    return limiter_of_run(_limiter, CONCURRENT_MAX)
