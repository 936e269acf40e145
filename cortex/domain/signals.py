"""Names, keys and content of signals, and what steps have received."""

from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.canonical import canonical, parse
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.limits import PAYLOAD

NAME_CHARS_MAX: Final = 100
KEY_CHARS_MAX: Final = 500
IDEMPOTENCY_KEY_CHARS_MAX: Final = 200


@attrs.frozen(kw_only=True)
class ReceivedSignal:
    """A signal that belongs to one step, and to no other."""

    id: UUID
    payload: str
    """JSON text."""
    sent_at: datetime


def check_text(text: object, *, what: str, chars_max: int, such_as: str) -> None:
    """Raise `UsageError` for a name or key that is no text of 1 to so many characters."""
    if not (isinstance(text, str) and 1 <= len(text) <= chars_max and text.isprintable()):
        raise UsageError(
            f"{what} {text!a:.80} is not text of 1 to {chars_max} printable characters",
            hint=f"such as {such_as}",
        )


def check_name(name: object) -> None:
    """Raise `UsageError` for a name that no signal can have."""
    check_text(name, what="signal name", chars_max=NAME_CHARS_MAX, such_as="payment")


def check_key(key: object) -> None:
    """Raise `UsageError` for a key that no signal can be sent to."""
    check_text(key, what="signal key", chars_max=KEY_CHARS_MAX, such_as="order-8812")


def payload_of(value: object, *, what: str) -> str:
    """Return the content of a signal as JSON text.

    Raises `InvalidValueError` that names `what` for content that is too large, or that the step of
    a job could not read again: nested too deep, with NaN, NUL or numbers of more than 64 bits.
    """
    text = canonical(value, what=what)
    PAYLOAD.check(len(text.encode()), what=what)
    if canonical(orjson.loads(text), what=what) != text or _has_large_number(value):
        raise InvalidValueError(
            f"{what} has a number that does not fit 64 bits", hint="send it as text"
        )
    return text


def _has_large_number(value: object) -> bool:
    """Return whether a number becomes a whole one of more than 64 bits: jsonb has no exponents."""
    match value:
        case dict():
            return any(map(_has_large_number, value.values()))
        case list() | tuple():
            return any(map(_has_large_number, value))
        case float():
            return not -(2.0**63) <= value < 2.0**64
        case _:
            return False


def payload_of_text(text: str, *, what: str) -> str:
    """Return JSON text from outside as the content of a signal; raises as `payload_of`."""
    PAYLOAD.check(len(text.encode("utf-8", "surrogatepass")), what=what)
    return payload_of(parse(text, what=what), what=what)
