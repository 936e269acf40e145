"""Images and PDF files in prompts and tool results.

The record and requests contain references by digest, content blocks whose source is `stored`: the
content is kept once for a job and put in when a request is sent.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import attrs

from cortex.domain.errors import InvalidValueError
from cortex.domain.image_facts import NAMES, PDF, sniffed
from cortex.domain.model import Block

STORED: Final = "stored"
"""The type of a source whose content the record keeps."""
IMAGE: Final = "image"
DOCUMENT: Final = "document"

IMAGE_BYTES_MAX: Final = 3_932_160
"""The Messages API takes 5 MB in base64; this is the image itself."""
IMAGE_SIDE_MAX: Final = 8_000
DOCUMENT_BYTES_MAX: Final = 23_000_000
"""A request is at most 32 MB, in base64 and with everything else."""
PAGES_MAX: Final = 1_000
"""Google takes as many, Anthropic fewer: see `Capabilities`."""
JOB_BYTES_MAX: Final = 134_217_728
"""Of all files of a job together: the copy of a lineage is made in memory."""
REQUEST_BYTES_MAX: Final = 31_000_000
"""Of the base64 text of one request's files."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_COUNTS: Final = ("bytes", "width", "height", "pages")
_KB: Final = 1_000
_MB: Final = 1_000_000


@attrs.frozen(kw_only=True)
class StoredFile:
    """The facts about a file; its content is kept beside the record."""

    sha256: str
    media_type: str
    bytes: int
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    name: str | None = None

    @property
    def is_image(self) -> bool:
        return self.media_type != PDF

    @property
    def base64_bytes(self) -> int:
        return -(-self.bytes // 3) * 4

    def block(self) -> Block:
        """Return the content block that refers to the file."""
        facts = attrs.asdict(self, filter=lambda _, value: value is not None)
        return {
            "type": IMAGE if self.is_image else DOCUMENT,
            "source": {"type": STORED, **facts},
        }

    @classmethod
    def of(cls, block: object) -> Self | None:
        """Return the facts in a block that refers to a stored file; None for any other value."""
        source = block.get("source") if isinstance(block, Mapping) else None
        if not isinstance(source, Mapping) or source.get("type") != STORED:
            return None
        facts = {name: each for name, each in source.items() if name != "type"}
        return cls(**facts) if _are_facts(facts) else None

    def __str__(self) -> str:
        """What people see in place of the content: type, size and bytes in brackets."""
        kind = NAMES.get(self.media_type, self.media_type)
        parts = ["image"] if self.is_image else []
        parts += [self.name] if self.name else []
        if self.width is not None and self.height is not None:
            parts.append(f"{self.width}×{self.height}")  # noqa: RUF001 -- as people write it
        parts.append(kind)
        if self.pages is not None:
            parts[-1] += f", {self.pages} page{'s' if self.pages > 1 else ''}"
        return f"[{' '.join(parts)}, {_size(self.bytes)}]"


def _are_facts(facts: Mapping[str, Any]) -> bool:
    """Return whether these are facts about a file, and not what somebody wrote in their place."""
    known = {each.name: each.default for each in attrs.fields(StoredFile)}
    if not facts.keys() <= known.keys():
        return False
    given = {**known, **facts}
    counts = (each for name in _COUNTS if (each := given[name]) is not None or name == "bytes")
    digest, media_type, name = given["sha256"], given["media_type"], given["name"]
    return (
        isinstance(digest, str)
        and _DIGEST.fullmatch(digest) is not None
        and isinstance(media_type, str)
        and media_type in NAMES
        and all(type(each) is int and each >= 0 for each in counts)
        and isinstance(name, str | None)
    )


class File:
    """An image (PNG, JPEG, GIF, WebP) or a PDF: in the messages of a call, or a tool's result.

    Its type is that of its content. `content` is None for a file that comes from the record. Raises
    `InvalidValueError` for other files, and for one that is too large for models.
    """

    __slots__ = ("content", "stored")

    def __init__(self, content: bytes, *, name: str | None = None) -> None:
        self.content: bytes | None = content
        self.stored = facts_of(content, name=name)

    @classmethod
    def of_block(cls, block: object) -> "File":
        """Return the file that a block of the record refers to, without its content."""
        stored = StoredFile.of(block)
        if stored is None:
            raise InvalidValueError(f"no file: {block!r:.80}")
        made = cls.__new__(cls)
        made.content = None
        made.stored = stored
        return made

    def __repr__(self) -> str:
        return f"<File {self.stored}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.stored.sha256 == other.stored.sha256

    def __hash__(self) -> int:
        return hash(self.stored.sha256)


def facts_of(content: bytes, *, name: str | None = None) -> StoredFile:
    """Return the facts about a file's content. Raises `InvalidValueError` that names it."""
    what = f"file {name!r:.200}" if name else "a file"
    found = sniffed(content)
    if found is None:
        raise InvalidValueError(
            f"{what} is none that models can see: it begins with {content[:8]!r}",
            hint="give them PNG, JPEG, GIF, WebP or PDF, and other files as text",
        )
    is_image = found.media_type != PDF
    bytes_max = IMAGE_BYTES_MAX if is_image else DOCUMENT_BYTES_MAX
    kind = NAMES[found.media_type]
    if len(content) > bytes_max:
        hint = "scale it down" if is_image else "split it"
        size = f"{len(content):,} bytes of {kind}, at most {bytes_max:,}"
        raise InvalidValueError(f"{what} has {size}", hint=hint)
    longest = max(found.width or 0, found.height or 0)
    if longest > IMAGE_SIDE_MAX:
        raise InvalidValueError(
            f"{what} is {found.width}×{found.height}, at most {IMAGE_SIDE_MAX} on a side",  # noqa: RUF001
            hint="scale it down",
        )
    if found.pages is not None and found.pages > PAGES_MAX:
        raise InvalidValueError(
            f"{what} has {found.pages} pages, at most {PAGES_MAX}", hint="split it"
        )
    return StoredFile(
        sha256=hashlib.sha256(content).hexdigest(),
        media_type=found.media_type,
        bytes=len(content),
        width=found.width,
        height=found.height,
        pages=found.pages,
        name=name,
    )


def sent(block: Mapping[str, Any], content: bytes) -> Block:
    """Return a block that refers to a file as a request carries it."""
    stored = File.of_block(block).stored
    source = {
        "type": "base64",
        "media_type": stored.media_type,
        "data": base64.b64encode(content).decode("ascii"),
    }
    title = {"title": stored.name} if stored.name and not stored.is_image else {}
    others = {name: value for name, value in block.items() if name != "source"}
    return {**others, "source": source, **title}


def stored_in(content: object) -> Iterator[StoredFile]:
    """Yield the files that messages or blocks refer to, also those in tool results."""
    if isinstance(content, str | Mapping) or not isinstance(content, Iterable):
        return
    for block in content:
        if not isinstance(block, Mapping):
            continue
        if (stored := StoredFile.of(block)) is not None:
            yield stored
        else:
            yield from stored_in(block.get("content"))


def _size(count: int) -> str:
    if count < _KB:
        return f"{count} bytes"
    return f"{count / _KB:.0f} kB" if count < _MB else f"{count / _MB:.1f} MB"


def shown(value: Any) -> Any:
    """Return plain JSON for people, with the facts about files in place of references to them."""
    if (stored := StoredFile.of(value)) is not None:
        return str(stored)
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    return [shown(each) for each in value] if isinstance(value, list) else value
