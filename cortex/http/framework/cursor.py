"""Cursors of lists: text that a client gets with one page and sends for the next."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from cortex.domain.errors import UsageError
from cortex.http.framework.shape import text, whole

LENGTH_MAX: Final = 64
LIMIT_MAX: Final = 200
LIMIT_DEFAULT: Final = 50
NEXT_CURSOR: Final = (str | None, "cursor of the next page; null: last page")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ID_BYTES: Final = 16
_AT_BYTES: Final = 8


def cursor_of(id_: UUID, at: datetime | None = None) -> str:
    """Return the cursor of a row, from its id and, where it is part of the order, its instant."""
    raw = id_.bytes
    if at is not None:
        raw += ((at - _EPOCH) // _MICROSECOND).to_bytes(_AT_BYTES, "big", signed=True)
    return urlsafe_b64encode(raw).decode().rstrip("=")


def place_of(cursor: str) -> tuple[UUID, datetime | None]:
    """Return id and instant of a cursor. Raises `UsageError` for any other text."""
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        if len(raw) == _ID_BYTES:
            return UUID(bytes=raw), None
        if len(raw) == _ID_BYTES + _AT_BYTES:
            offset = int.from_bytes(raw[_ID_BYTES:], "big", signed=True)
            return UUID(bytes=raw[:_ID_BYTES]), _EPOCH + offset * _MICROSECOND
    except (ValueError, OverflowError):
        pass
    raise UsageError(
        f"{cursor[:LENGTH_MAX]!a} is not a cursor", hint="use `next_cursor` of the previous page"
    )


def id_of(cursor: str | None) -> UUID | None:
    """Return the id of a cursor, None without one. Raises `UsageError`."""
    return None if cursor is None else place_of(cursor)[0]


def cursor_field() -> Any:
    """Declare the query field with the cursor."""
    return text(doc="`next_cursor` of the previous page", length_max=LENGTH_MAX, default=None)


def limit_field(most: int = LIMIT_MAX) -> Any:
    """Declare the query field with the page size."""
    low = min(LIMIT_DEFAULT, most)
    return whole(doc="maximum number of rows", low=1, high=most, default=low)
