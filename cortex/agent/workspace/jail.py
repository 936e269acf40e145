"""Paths that stay inside one folder, whatever a model writes and whatever changes meanwhile.

A path is walked part by part from an open descriptor of the folder. Each part is opened relative to
the one before and never through a symlink, so no part can be swapped for a link between a check and
its use.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import trio

from cortex.domain.errors import ForbiddenError, InvalidValueError, NotFoundError, RejectedError
from cortex.http_client.secret_values import secret_files_known

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a named pipe would block the open until it has a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# C0, C1 and DEL: no name that a person chooses has them, and terminals act on them.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


PATH_BYTES_MAX = 4_096  # the kernel's limit
PARTS_MAX = 64  # list_files shows nothing deeper


def parts_of(path: str) -> tuple[str, ...]:
    """Return a relative path's parts; `.` has none.

    Raises `ForbiddenError` for a path that points elsewhere, `InvalidValueError` for one that is
    too long.
    """
    size = len(path.encode(errors="surrogatepass"))
    if size > PATH_BYTES_MAX:
        raise InvalidValueError(f"path of {size:,} bytes is longer than {PATH_BYTES_MAX:,}")
    if path.startswith("/"):
        raise ForbiddenError(f"path {path!r} is absolute", hint="give it relative to the folder")
    if _CONTROL.search(path):
        raise ForbiddenError(f"path {path!r} has control characters")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if len(parts) > PARTS_MAX:
        raise InvalidValueError(f"path {path[:40]!r}… has {len(parts)} parts, at most {PARTS_MAX}")
    if ".." in parts:
        raise ForbiddenError(f"path {path!r} leaves the folder", hint="write it without '..'")
    return parts


@contextlib.contextmanager
def open_folder(root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder at `parts` below `root`, closed on leaving.

    `root` itself is trusted and may be a symlink. `create` makes missing folders. Raises
    `ForbiddenError` at a symlink, `NotFoundError` or `RejectedError` where there is no folder.
    """
    try:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"folder {root} cannot be opened: {error.strerror}") from error
    try:
        for depth, part in enumerate(parts, start=1):
            with _explained("/".join(parts[:depth]), part, here):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                inner = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


@contextlib.contextmanager
def open_file(root: Path, path: str) -> Iterator[int]:
    """Yield a descriptor of the regular file at `path` below `root`, for reading.

    Raises `ForbiddenError`, besides what `open_folder` raises, for a file with a declared secret.
    """
    *outer, name = parts_of(path) or (".",)
    with open_folder(root, tuple(outer)) as folder:
        with _explained(path, name, folder):
            file = os.open(name, _FILE, dir_fd=folder)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise RejectedError(f"{path!r} is not a file")
            identity = status.st_dev, status.st_ino
            if any(identity in each for each in secret_files_known().values()):
                raise ForbiddenError(
                    f"{path!r} holds a declared secret", hint="tools use it by its name"
                )
            yield file
        finally:
            os.close(file)


def refuse_symlink(path: str, name: str, folder: int) -> None:
    """Raise `ForbiddenError` if `name` in `folder` is a symlink; `path` is for the error."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise ForbiddenError(f"{path!r} is a symlink", hint="symlinks are not followed")


@contextlib.contextmanager
def _explained(path: str, name: str, folder: int) -> Iterator[None]:
    """Translate the errors of opening `name`; Linux reports ENOTDIR or ELOOP for a symlink."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{path!r} does not exist", hint="list_files shows what does"
        ) from error
    except PermissionError as error:
        raise ForbiddenError(f"{path!r} may not be opened") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            refuse_symlink(path, name, folder)
        if error.errno == errno.ENOTDIR:
            raise RejectedError(f"{path!r} is not a folder") from error
        raise RejectedError(f"{path!r} cannot be opened: {error.strerror}") from error


# --- Writing a file whole: a reader, or a crash, sees the old content or the new, never a part.


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without the set-user bits: those belonged to other content.
PERMISSIONS = 0o777


def write_whole(folder: int, name: str, data: bytes) -> None:
    """Give the file `name` in an open folder this content, safe against a power cut.

    Call this in a thread of trio's: if its caller was cancelled meanwhile, the file stays
    unchanged. A link is replaced, not followed. Raises OSError.
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
