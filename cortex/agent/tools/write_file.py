"""Writes a text file."""

import attrs

from cortex.agent.tools.tool import ToolContext, tool
from cortex.agent.workspace.jail import open_folder, parts_of, refuse_symlink, write_whole
from cortex.domain.errors import ForbiddenError, RejectedError
from cortex.domain.key_shapes import mask_in


@attrs.frozen
class Written:
    """What is on the disk now, also after a power cut."""

    path: str
    bytes: int


@tool(local=True, timeout=10)
def write_file(context: ToolContext, path: str, content: str) -> Written:
    """Write a text file, replacing it if it exists.

    Missing folders are made. The file appears at once as a whole. Only the workspace can be
    written to; symlinks, and what is inside .git, are refused.

    Args:
        path: The file, relative to the workspace, such as "notes/summary.md".
        content: The whole new content of the file.
    """
    data = content.encode()
    if (mark := mask_in(content)) is not None:
        # Copied from what a tool has returned: it would replace the key in the file.
        raise RejectedError(
            f"the content for {path!r} has {mark!r} in place of a key",
            hint="change the original file in place with run_command, or name the key in words",
        )
    *outer, name = parts_of(path) or (".",)
    if ".git" in (part.lower() for part in (*outer, name)):
        # It configures what git runs, and may be a file that points to another repository.
        raise ForbiddenError(f"{path!r} is git's own", hint="git itself can change it")
    context.quota.check(context.workspace, len(data), what=f"{path!r} cannot be written")
    with open_folder(context.workspace, tuple(outer), create=True) as folder:
        try:
            refuse_symlink(path, name, folder)
            write_whole(folder, name, data)
        except OSError as error:
            raise RejectedError(f"{path!r} cannot be written: {error.strerror}") from error
    return Written(path=path, bytes=len(data))
