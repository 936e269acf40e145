"""Puts the contents of files into a request, in place of references to the record.

The contents of all requests under way share one room of memory: a call waits for its part.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from uuid import UUID

import attrs
import trio

from cortex.agent.models.errors import ModelRejectedError
from cortex.domain.errors import RejectedError, UnavailableError
from cortex.domain.failure import CallFailure
from cortex.domain.file import REQUEST_BYTES_MAX, StoredFile, sent, stored_in
from cortex.domain.image_facts import GIF
from cortex.domain.model import MANY_IMAGES, Capabilities, ModelRequest

ROOM_BYTES: Final = 268_435_456
"""Of all requests of a pod together: eight of the largest."""
COPIES: Final = 3
"""The content, its base64 text, and the body of the request."""
TOO_LARGE: Final = "request_too_large"


class FileContents(Protocol):
    """The files of jobs."""

    async def content(self, lineage_id: UUID, sha256: str) -> bytes | None:
        """Return the content of a file; None: the lineage has no such file."""


class FilesOf(Protocol):
    """Whose files a request refers to."""

    @property
    def lineage_id(self) -> UUID:
        """The first job of its lineage."""
        ...

    @property
    def call_s(self) -> float:
        """The longest wait for room, in seconds."""
        ...


class NoContents:
    """No job has files."""

    async def content(self, lineage_id: UUID, sha256: str) -> bytes | None:  # noqa: ARG002
        return None


@attrs.define
class Room:
    """Bytes that calls share, in the order in which they ask."""

    bytes_max: int = ROOM_BYTES
    _left: int = attrs.field(init=False)
    _waiting: deque[tuple[int, trio.Event]] = attrs.field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self.bytes_max

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Have this many bytes inside the block; more than all are all."""
        size = min(size, self.bytes_max)
        if self._waiting or size > self._left:
            await self._wait(size)
        else:
            self._left -= size
        try:
            yield
        finally:
            self._give(size)

    async def _wait(self, size: int) -> None:
        place = (size, trio.Event())
        self._waiting.append(place)
        try:
            await place[1].wait()
        except BaseException:
            if place[1].is_set():
                self._give(size)
            else:
                self._waiting.remove(place)
                self._give(0)
            raise

    def _give(self, size: int) -> None:
        self._left += size
        while self._waiting and self._waiting[0][0] <= self._left:
            wanted, event = self._waiting.popleft()
            self._left -= wanted
            event.set()


@attrs.frozen
class PromptFiles:
    """The files of the requests of one pod."""

    contents: FileContents = attrs.field(factory=NoContents)
    room: Room = attrs.field(factory=Room)

    @asynccontextmanager
    async def put_in(
        self, request: ModelRequest, caller: FilesOf, capabilities: Capabilities
    ) -> AsyncIterator[ModelRequest]:
        """Have the request as it is sent.

        Raises:
            RejectedError: the model takes no such files, or the job has no such file.
            ModelRejectedError: the files are too large for one request, or too many.
            UnavailableError: there was no room for them within the time of the call.
        """
        messages = _seen(request, capabilities)
        request = attrs.evolve(request, messages=messages)
        files = {each.sha256: each for each in stored_in(messages)}
        if not files:
            yield request
            return
        _check_size(request.model, list(stored_in(messages)), capabilities)
        size = COPIES * sum(each.base64_bytes for each in stored_in(messages))
        with trio.CancelScope(deadline=trio.current_time() + caller.call_s) as waiting:
            async with self.room.taken(size):
                found = {
                    sha256: await self._content(caller.lineage_id, file)
                    for sha256, file in files.items()
                }
                waiting.deadline = float("inf")
                yield attrs.evolve(request, messages=tuple(_filled(messages, found)))
        if waiting.cancelled_caught:
            raise UnavailableError(
                f"the files of a request to model {request.model!r} found no room in the pod's "
                f"memory within {caller.call_s:g} s"
            )

    async def _content(self, lineage_id: UUID, file: StoredFile) -> bytes:
        content = await self.contents.content(lineage_id, file.sha256)
        if content is None:
            raise RejectedError(
                f"{file} is not in the record of this job",
                hint="give the call the file itself, not a reference of another job",
            )
        return content


def _seen(request: ModelRequest, capabilities: Capabilities) -> tuple[Mapping[str, Any], ...]:
    """Return the messages as a model can see them: results say what it cannot."""
    if capabilities.images and capabilities.documents and capabilities.gifs:
        return tuple(request.messages)

    def seen(block: Any, *, is_result: bool) -> Any:
        if not isinstance(block, Mapping):
            return block
        file = StoredFile.of(block)
        if file is None:
            content = block.get("content")
            if not isinstance(content, list | tuple):  # a provider's own result is an object
                return block
            return {**block, "content": [seen(each, is_result=True) for each in content]}
        lacks = _lacks(file, capabilities)
        if lacks is None:
            return block
        if not is_result:
            raise RejectedError(
                f"model {request.model!r} takes no {lacks}, such as {file}",
                hint="leave it out, or name a model that takes them",
            )
        return {"type": "text", "text": f"{file}: this model takes no {lacks}"}

    return tuple(
        message
        if isinstance(message["content"], str)
        else {**message, "content": [seen(each, is_result=False) for each in message["content"]]}
        for message in request.messages
    )


def _lacks(file: StoredFile, capabilities: Capabilities) -> str | None:
    """Return what files a model does not take if this is one of them."""
    if not file.is_image:
        return None if capabilities.documents else "PDF files"
    if not capabilities.images:
        return "images"
    return "GIF images" if file.media_type == GIF and not capabilities.gifs else None


def _check_size(model: str, files: list[StoredFile], capabilities: Capabilities) -> None:
    """Refuse what the API would, so that an agent shortens its oldest results."""
    images = [each for each in files if each.is_image]
    size = sum(each.base64_bytes for each in files)
    pages = sum(each.pages or 0 for each in files)
    longest = max((max(each.width or 0, each.height or 0) for each in images), default=0)
    images_max, pages_max = capabilities.images_max, capabilities.pages_max
    side_max = capabilities.side_of_many
    message = None
    if size > REQUEST_BYTES_MAX:
        message = f"the files of the request have {size:,} bytes, at most {REQUEST_BYTES_MAX:,}"
    elif images_max is not None and len(images) > images_max:
        message = f"the request has {len(images)} images, at most {images_max} for {model!r}"
    elif pages_max is not None and pages > pages_max:
        message = f"the request's PDF files have {pages} pages, at most {pages_max} for {model!r}"
    elif side_max is not None and len(images) > MANY_IMAGES and longest > side_max:
        message = (
            f"the request has more than {MANY_IMAGES} images, and one of {longest} pixels on a "
            f"side: then at most {side_max} for {model!r}"
        )
    if message is not None:
        failure = CallFailure(model=model, host="its API", type=TOO_LARGE, status=413)
        raise ModelRejectedError(failure, message, hint="give it fewer or smaller files")


def _filled(
    messages: Iterable[Mapping[str, Any]], contents: Mapping[str, bytes]
) -> Iterable[Mapping[str, Any]]:
    def filled(block: Any) -> Any:
        if not isinstance(block, Mapping):
            return block
        if (file := StoredFile.of(block)) is not None:
            return sent(block, contents[file.sha256])
        content = block.get("content")
        if not isinstance(content, list | tuple):
            return block
        return {**block, "content": [filled(each) for each in content]}

    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            yield message
        else:
            yield {**message, "content": [filled(each) for each in content]}
