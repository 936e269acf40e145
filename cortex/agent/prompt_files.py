"""Images and PDF files beside an agent's prompt."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

import attrs

from cortex.agent.workspace.jail import open_file
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.file import DOCUMENT_BYTES_MAX, REQUEST_BYTES_MAX, File
from cortex.domain.model import Block
from cortex.durable.codec import as_json
from cortex.durable.context import Context
from cortex.durable.files import decoded

FILES_MAX: Final = 20


@attrs.frozen(kw_only=True)
class InlineFile:
    """A file in the payload itself."""

    data: str
    """Its content in base64."""
    name: str | None = None


PromptFile = str | InlineFile
"""A path in the job's folder, or the content."""


async def kept_files(
    ctx: Context, files: Sequence[PromptFile], *, folder: Path | None, prefix: str = ""
) -> list[Block]:
    """Keep the files of a prompt, as a step of the job; return references to them.

    Raises:
        UsageError: there are too many, or paths without a folder.
        InvalidValueError: a file is none that models can see, or too large.
        NotFoundError, RejectedError: there is no such file in the folder.
    """
    if not files:
        return []
    if len(files) > FILES_MAX:
        raise UsageError(f"files: {len(files)} files, at most {FILES_MAX}")
    paths = [each for each in files if isinstance(each, str)]
    if paths and folder is None:
        raise UsageError(
            f"files: {paths[0]!r:.200} needs a folder that it is in",
            hint="give the job the argument folder, or the file's content in base64",
        )

    def read() -> list[File]:
        found: list[File] = []
        for each in files:
            found.append(_read(each, folder))
            size = sum(file.stored.base64_bytes for file in found)
            if size > REQUEST_BYTES_MAX:
                raise InvalidValueError(
                    f"files: {size:,} bytes in base64 with {found[-1].stored}, "
                    f"at most {REQUEST_BYTES_MAX:,}",
                    hint="give it fewer or smaller files",
                )
        return found

    given = as_json({"files": list(files), "folder": str(folder)}, what="files")
    return await ctx.keep_files(f"{prefix}files", read, given=given)


def _read(file: PromptFile, folder: Path | None) -> File:
    if isinstance(file, InlineFile):
        return decoded(file.data, name=file.name, what="files")
    assert folder is not None  # noqa: S101 -- checked above
    with open_file(folder, file) as handle:
        return File(os.pread(handle, DOCUMENT_BYTES_MAX + 1, 0), name=PurePath(file).name)
