"""Which folders of its machine a job that is submitted over HTTP may have its agent work in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cortex.domain.errors import ForbiddenError

AGENT_JOB: Final = "run_agent"
FOLDER: Final = "folder"
WITHIN: Final = "within"


def confine(job_type: str, payload: dict[str, Any], roots: Sequence[Path]) -> dict[str, Any]:
    """Return the payload with the root that its folder is in, for the job to check when it reads.

    Raises `ForbiddenError` for a folder in none of the roots, wherever its links lead.
    """
    if job_type != AGENT_JOB:
        return payload
    kept = {name: value for name, value in payload.items() if name != WITHIN}
    folder = kept.get(FOLDER)
    if not isinstance(folder, str):
        return kept  # none, or none that the handler takes
    for root in roots:
        if _is_in(folder, root):
            return {**kept, WITHIN: str(root)}
    raise ForbiddenError(
        f"folder {folder!r} is in none that jobs over HTTP may work in",
        hint="the operator names those with the setting http_folders",
    )


def _is_in(folder: str, root: Path) -> bool:
    try:
        return Path(folder).is_absolute() and Path(folder).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        return False
