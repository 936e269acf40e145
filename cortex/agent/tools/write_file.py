"""Writing a file whole: a reader, or a crash, sees the old content or the new, never a part."""

import contextlib
import os
import secrets

import attrs
import trio

from cortex.agent.jail import open_folder, parts_of, refuse_symlink
from cortex.agent.tool import ToolContext, tool
from cortex.domain.errors import RejectedError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without the set-user bits: those belonged to other content.
PERMISSIONS = 0o777


@attrs.frozen
class Written:
    """What stands on the disc now, through a power cut too."""

    path: str
    bytes: int


@tool(local=True)
def write_file(context: ToolContext, path: str, content: str) -> Written:
    """Write a text file, replacing it if it exists.

    Missing folders are made. The file appears at once as a whole. Only the workspace can be
    written to; symlinks are refused.

    Args:
        path: The file, relative to the workspace, such as "notes/summary.md".
        content: The whole new content of the file.
    """
    data = content.encode()
    *outer, name = parts_of(path) or (".",)
    with open_folder(context.workspace, tuple(outer), create=True) as folder:
        try:
            refuse_symlink(path, name, folder)
            _replace(folder, name, data)
        except OSError as error:
            raise RejectedError(f"{path!r} cannot be written: {error.strerror}") from error
    return Written(path=path, bytes=len(data))


def _replace(folder: int, name: str, data: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    file = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        with open(file, "wb") as writer:  # noqa: PTH123 - the descriptor is what keeps it inside
            _keep_mode(folder, name, file)
            writer.write(data)
            writer.flush()
            os.fsync(file)
        # After a time-out this thread goes on alone: a later attempt may have written already.
        trio.from_thread.check_cancelled()
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _keep_mode(folder: int, name: str, file: int) -> None:
    """Give the new file the old one's permissions: a script stays executable."""
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(file, os.lstat(name, dir_fd=folder).st_mode & PERMISSIONS)
