"""Writing a file whole: a reader, or a crash, sees the old content or the new, never a part."""

import contextlib
import os
import secrets

import trio

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without the set-user bits: those belonged to other content.
PERMISSIONS = 0o777


def write_whole(folder: int, name: str, data: bytes) -> None:
    """Give the file `name` in an open folder this content; on the disc, through a power cut too.

    To be called in a thread of trio's: when its caller was cancelled meanwhile, the file stays as
    it was. A link is replaced, not followed. Raises OSError.
    """
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
