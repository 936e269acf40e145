"""Forms sent by browsers, and the proof that they come from one of our pages."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from cortex.domain.errors import ForbiddenError, UsageError
from cortex.durable.codec import refuse_unstorable

FIELDS_MAX: Final = 30
CSRF: Final = "csrf"


def fields_of(body: bytes) -> dict[str, str]:
    """Return the fields of a form with normalised line ends.

    Raises `UsageError` for malformed input, `InvalidValueError` for values that Postgres cannot
    store.
    """
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise UsageError("this is not a form of Cortex") from error
    fields = {name: text.replace("\r\n", "\n") for name, text in pairs}
    if len(fields) < len(pairs):
        raise UsageError("a field is given twice")
    refuse_unstorable(fields, "form")
    return fields


def csrf_of(secret: str, purpose: str) -> str:
    """Return the proof for a session or a link, and one purpose."""
    return hmac.new(secret.encode(), f"cortex form {purpose}".encode(), hashlib.sha256).hexdigest()


def check_csrf(fields: Mapping[str, str], secret: str, purpose: str) -> None:
    """Raise `ForbiddenError` unless the form's page was served to this very person."""
    given = fields.get(CSRF, "")
    if not hmac.compare_digest(given.encode(), csrf_of(secret, purpose).encode()):
        raise ForbiddenError(
            "this form is not yours, or it has expired", hint="reload the page and try again"
        )
