"""Sets aside the leftovers of an interrupted step, before it runs again: nothing is destroyed."""

from datetime import datetime
from pathlib import Path
from uuid import UUID

import attrs
import trio

from cortex.agent.workspace.artefacts import set_aside
from cortex.agent.workspace.receipts import data_of
from cortex.agent.workspace.work_tree import discard
from cortex.domain.errors import NotFoundError, RejectedError
from cortex.domain.timeouts import TimeoutReceipt
from cortex.store.jobs import ShownJob
from cortex.store.resumptions import Settled
from cortex.store.timeouts import Recorded


@attrs.frozen(kw_only=True)
class Leftovers:
    """What is to be set aside, and where it may be."""

    job_id: UUID
    workspace: Path
    folder: Path | None
    """The folder that the job worked in besides its workspace."""
    receipt: TimeoutReceipt | None
    """None: no time-out ended it, so that only its folder is examined."""
    since: datetime
    """The last checkpoint: older changes may be a committed step's, and stay."""
    kept: frozenset[str]
    """Files of the workspace that the record of a committed step names: they stay, too."""
    into: Path
    """Folder to be made for files that are in no git work tree."""
    pod: str | None
    """Where it ran, for people who have to go there."""

    @property
    def folders(self) -> list[Path]:
        """Folders whose uncommitted work is to be stashed."""
        if self.receipt is None:
            return [] if self.folder is None else [self.folder]
        trees = self.receipt.work_trees
        return [Path(each.folder) for each in trees if each.change_count or each.problem]


@attrs.frozen(kw_only=True)
class Stash:
    """Uncommitted work of one folder, as a commit: `git stash apply COMMIT` brings it back."""

    folder: str
    commit: str


@attrs.frozen(kw_only=True)
class SetAside:
    """Where everything has gone."""

    stashes: list[Stash]
    files: list[str]
    """Relative to the workspace, and now to `into`."""
    into: str | None


def leftovers_of(
    failed: ShownJob,
    found: Recorded | None,
    settled: Settled,
    *,
    workspaces: Path,
    new_id: UUID,
) -> Leftovers:
    """Return what a failed job left below `workspaces` and in its folder.

    `found`: the receipt of the time-out that ended it; `new_id` names the folder for its files.
    """
    name = str(failed.lineage_id or failed.id)
    folder = failed.payload.get("folder") if isinstance(failed.payload, dict) else None
    return Leftovers(
        job_id=failed.id,
        workspace=workspaces / name,
        folder=Path(folder) if isinstance(folder, str) else None,
        receipt=None if found is None else found.receipt,
        since=settled.at if found is None else max(settled.at, found.receipt.step_started_at),
        kept=settled.files,
        into=workspaces / f"{name}.discarded" / str(new_id),
        pod=failed.pod,
    )


async def put_aside(left: Leftovers) -> SetAside:
    """Stash uncommitted work and move files of the workspace away; a second call finds nothing.

    Raises `NotFoundError` if a folder is not on this machine, before anything is touched, and
    `RejectedError` if git refuses; its message names what was stashed before.
    """
    artefacts = [
        each
        for each in (() if left.receipt is None else left.receipt.artefacts)
        if each.is_new and each.path not in left.kept
    ]
    for folder in (*left.folders, *([left.workspace] if artefacts else [])):
        if not await trio.Path(folder).is_dir():
            raise NotFoundError(
                f"folder {folder} of job {left.job_id} is not on this machine",
                hint=f"run it where the job ran: on {left.pod}" if left.pod else None,
            )
    stashes: list[Stash] = []
    for folder in left.folders:
        commit = await _stashed(left, folder, before=stashes)
        if commit is not None:
            stashes.append(Stash(folder=str(folder), commit=commit))
    files = []
    if artefacts:
        files = await trio.to_thread.run_sync(
            lambda: set_aside(left.workspace, artefacts, into=left.into)
        )
    return SetAside(stashes=stashes, files=files, into=str(left.into) if files else None)


async def _stashed(left: Leftovers, folder: Path, *, before: list[Stash]) -> str | None:
    try:
        return await discard(
            folder, job_id=left.job_id, since=left.since, spared=data_of(left.workspace)
        )
    except RejectedError as error:
        done = ", ".join(f"{each.commit} in {each.folder}" for each in before)
        message = f"{folder}: {error.message}" + (f"; stashed before that: {done}" if done else "")
        by_hand = "set it aside by hand, then use --choice retry_step"
        raise RejectedError(message, hint=error.hint or by_hand) from error
