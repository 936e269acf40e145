"""Folders in which the agent of a job submitted over HTTP may work."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cortex.domain.errors import ForbiddenError
from cortex.domain.job import RUN_AGENT

FOLDER: Final = "folder"
WITHIN: Final = "within"


def confine(job_type: str, payload: dict[str, Any], roots: Sequence[Path]) -> dict[str, Any]:
    """Return the payload with the root of its folder, which the job checks on reading.

    Raises `ForbiddenError` for a folder outside all roots, also through links.
    """
    if job_type != RUN_AGENT:
        return payload
    kept = {name: value for name, value in payload.items() if name != WITHIN}
    folder = kept.get(FOLDER)
    if not isinstance(folder, str):
        return kept  # no folder, or none that the handler takes
    return {**kept, WITHIN: str(root_of(folder, roots))}


def root_of(folder: str, roots: Sequence[Path]) -> Path:
    """Return the root that a folder lies in; raises `ForbiddenError` as `confine` does."""
    for root in roots:
        if _is_in(folder, root):
            return root
    raise ForbiddenError(
        f"folder {folder!r} is outside the folders for jobs over HTTP",
        hint="the operator sets these with http_folders",
    )


def _is_in(folder: str, root: Path) -> bool:
    try:
        return Path(folder).is_absolute() and Path(folder).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        return False
