"""Tool output that is too large for the record: kept in a file, which the model can read.

Up to 1 MiB it is recorded unchanged. Up to 64 MiB it becomes a file in the job's workspace, and its
beginning is recorded. Beyond that the call has failed. An effect never fails because of its
result's size: that is cut and kept.
"""

import hashlib
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import trio
from attrs import frozen
from trio.lowlevel import RunVar

from cortex.agent.confinement.quota import Quota
from cortex.agent.plain import raw_text
from cortex.agent.workspace.jail import open_file, open_folder, write_whole
from cortex.domain.errors import CortexError, RejectedError, UnavailableError
from cortex.domain.limits import CHECKPOINT, TOOL_OUTPUT
from cortex.domain.timeouts import clipped
from cortex.durable.codec import encode
from cortex.durable.threads import limiter_of_run

FOLDER: Final = "tool-output"
"""In the workspace."""
BEGINNING_BYTES: Final = 4_096
KEY_CHARS_MAX: Final = 100
DIGEST_CHARS: Final = 16
WRITE_S: Final = 30.0
"""Writing 64 MiB to a healthy disk takes a second."""
WRITERS_MAX: Final = 8
_limiter: RunVar[trio.CapacityLimiter] = RunVar("writers of artefacts")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.#-]+")


async def fitted(
    output: Any,
    *,
    workspace: Path,
    key: str,
    is_effect: bool = False,
    quota: Quota | None = None,
) -> Any:
    """Return `output` as JSON that fits the record, or a reference to a file with it.

    `{"artefact": path in the workspace, "bytes": …, "sha256": …, "beginning": first 4 kB}`: bytes
    and digest are those of the file. The file is complete before this returns; the same output
    gives the same file. `key` is the step's. Text becomes a text file, anything else JSON; secrets
    are redacted in both.

    Raises `InvalidValueError` for more than 64 MiB, and errors of writing, such as for a workspace
    that is full by its `quota`. For an effect neither is
    raised: "truncated" is its full size, "problem" why there is no file.
    """
    what = f"the output of tool call {key!r}"
    details: dict[str, Any] = {}
    try:
        text = encode(output, what=what, limit=None if is_effect else TOOL_OUTPUT)
        if len(text.encode()) <= CHECKPOINT.bytes_max:
            return output
        # Writers that a hung disk keeps take no other threads.
        limiter = limiter_of_run(_limiter, WRITERS_MAX)
        in_thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=limiter)
        with trio.move_on_after(WRITE_S, shield=is_effect):
            artefact = await in_thread(_artefact, text, key)
            details = artefact.details
            await in_thread(artefact.write, workspace, Quota() if quota is None else quota)
            return {"artefact": artefact.path, **details}
        raise UnavailableError(f"{what} could not be written within {WRITE_S:g} seconds")
    except CortexError as error:
        if not is_effect:
            raise
        return {
            "problem": error.message,
            "beginning": raw_text(output)[:BEGINNING_BYTES],
            **details,
        }


def keep_text(workspace: Path, name: str, text: str, *, quota: Quota | None = None) -> str:
    """Write a text to a file of the workspace, unless it is there; return its path. Blocks.

    Raises `CortexError` if it cannot be written.
    """
    data = text.encode()
    artefact = _Artefact(_path(name, data, "txt"), data, {})
    if not artefact.exists(workspace):
        artefact.write(workspace, Quota() if quota is None else quota)
    return artefact.path


@frozen
class _Artefact:
    """A file to be written."""

    path: str
    data: bytes
    details: dict[str, Any]

    def exists(self, workspace: Path) -> bool:
        """Return whether a file of this length is there: its name contains the digest."""
        with suppress(CortexError, OSError), open_file(workspace, self.path) as file:
            return os.fstat(file).st_size == len(self.data)
        return False

    def write(self, workspace: Path, quota: Quota) -> None:
        quota.check(workspace, len(self.data), what=f"{self.path} cannot be written")
        *outer, name = self.path.split("/")
        try:
            with open_folder(workspace, tuple(outer), create=True) as folder:
                write_whole(folder, name, self.data)
        except OSError as error:
            raise RejectedError(f"{self.path} cannot be written: {error.strerror}") from error


def _artefact(text: str, key: str) -> _Artefact:
    value = orjson.loads(text)
    content, ending = (value, "txt") if isinstance(value, str) else (text, "json")
    data = content.encode()
    details: dict[str, Any] = {}
    if len(data) > TOOL_OUTPUT.bytes_max:
        details["truncated"] = len(data)
        data = data[: TOOL_OUTPUT.bytes_max].decode(errors="ignore").encode()
    digest = hashlib.sha256(data).hexdigest()
    details |= {
        "bytes": len(data),
        "sha256": digest,
        "beginning": clipped(content, BEGINNING_BYTES),
    }
    return _Artefact(_path(key, data, ending), data, details)


def _path(key: str, data: bytes, ending: str) -> str:
    name = _NOT_IN_NAMES.sub("-", key)[:KEY_CHARS_MAX]
    digest = hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]
    return f"{FOLDER}/{name}-{digest}.{ending}"
