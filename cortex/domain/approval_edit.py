"""Arguments that a person edited before agreeing to them."""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.argument_check import misfits
from cortex.domain.canonical import canonical, parse
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.redaction import secret_in

EDITED_BYTES_MAX: Final = 1_048_576
WHAT: Final = "edited arguments"


def edited_arguments(text: str, *, schema: Mapping[str, Any] | None) -> str:
    """Return edited arguments as canonical JSON; the types of values stay as they are written.

    `schema` is the one that was stored with the request. Raises `RejectedError` where there is
    none, `InvalidValueError` that names every argument that does not fit.
    """
    if schema is None:
        raise RejectedError(
            "its arguments cannot be edited: nothing says how they must look",
            hint="approve or deny them as they are",
        )
    size = len(text.encode(errors="replace"))
    if size > EDITED_BYTES_MAX:
        raise InvalidValueError(f"{WHAT} have {size:,} bytes, more than {EDITED_BYTES_MAX:,}")
    value = parse(text, what="the edit")
    if not isinstance(value, dict):
        raise InvalidValueError(f"{WHAT} must be an object by their names")
    wrong = misfits(schema, value)
    if wrong:
        told = "; ".join(f"{each.field} {each.reason}" for each in wrong)
        raise InvalidValueError(f"{WHAT} do not fit: {told}")
    edited = canonical(value, what=WHAT)
    if secret := secret_in(edited):
        raise InvalidValueError(f"{WHAT} hold secret {secret}, which no record may hold")
    return edited
