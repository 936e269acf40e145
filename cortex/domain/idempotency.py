"""Idempotency keys: their form, the equality of requests, and the stored responses.

A caller chooses a key for a write. If the same request comes again under it, the write is not
repeated: the caller gets the stored response. Another request under the same key is an error.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain import errors
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
    RejectedError,
    UsageError,
)

KEY_TTL_S: Final = 86_400.0
"""A day: longer than any caller keeps retrying, short enough to keep the table small."""
KEY_LENGTH_MAX: Final = 255
RESPONSE_BYTES_MAX: Final = 1_048_576

PERMANENT: Final = (UsageError, NotFoundError, ForbiddenError, ConflictError, RejectedError)
"""Errors that the same request would meet again: kept under the key. Others free the key."""

_KEY: Final = re.compile(r"[!-~]+")


class KeyPendingError(ConflictError):
    """A request with the same key is still running: its result is not known yet."""


def checked_key(key: str) -> str:
    """Return the key. Raises `UsageError` for one that people or protocols could misread."""
    if not key:
        raise UsageError("an idempotency key must not be empty", hint="a UUID is a good one")
    if len(key) > KEY_LENGTH_MAX:
        raise UsageError(
            f"an idempotency key of {len(key)} characters is longer than {KEY_LENGTH_MAX}",
            hint="a UUID is a good one",
        )
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"idempotency key {key!a} may hold visible ASCII characters only",
            hint="no spaces, no control characters; a UUID is a good one",
        )
    return key


def request_digest(operation: str, request: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 that identifies equal requests: the order of keys does not matter."""
    return hashlib.sha256(canonical([operation, request], what="request").encode()).digest()


def response_json(response: object) -> str:
    """Return a response as JSON text that fits under a key. Raises `InvalidValueError`."""
    text = canonical(response, what="response")
    if len(text) > RESPONSE_BYTES_MAX:
        raise InvalidValueError(
            f"a response of {len(text):,} bytes is larger than {RESPONSE_BYTES_MAX:,}",
            hint="ask for less at once",
        )
    return text


def canonical(value: object, *, what: str) -> str:
    """Return a value as ASCII JSON with sorted keys; records become objects, ids and money text.

    Raises `InvalidValueError` for what JSON cannot represent.
    """
    try:
        return json.dumps(
            value, default=_plain, sort_keys=True, allow_nan=False, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"the {what} is not JSON: {error}") from error


def _plain(value: object) -> object:
    match value:
        case UUID() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
        case Enum():
            return value.value
        case bytes():
            return value.hex()
        case AbstractSet():
            return sorted(value, key=lambda item: canonical(item, what="response"))
        case _ if attrs.has(type(value)):
            return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def error_document(error: CortexError) -> dict[str, str | None]:
    """Return the stored form of an error; characters that cannot be stored become visible."""
    return {
        "code": error.code,
        "message": _storable(error.message),
        "hint": None if error.hint is None else _storable(error.hint),
    }


def error_from(document: Mapping[str, Any]) -> CortexError:
    """Restore a stored error: of the class that has its code, else a `RejectedError`.

    A code is unknown only if another version of the program stored it.
    """
    error_type = _PERMANENT_BY_CODE.get(document["code"], RejectedError)
    return error_type(document["message"], hint=document["hint"])


def _storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


_PERMANENT_BY_CODE: Final[dict[str, type[CortexError]]] = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, PERMANENT)
}
