"""Signals from a client, checked before they are sent."""

from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.policy import NAME_MAX
from cortex.domain.signals import (
    IDEMPOTENCY_KEY_CHARS_MAX,
    check_key,
    check_name,
    check_text,
    payload_of_text,
)
from cortex.durable.codec import encode


@attrs.frozen(kw_only=True)
class Signal:
    """What is sent, to a job or to a key."""

    name: str
    payload: str
    """JSON text."""
    job: UUID | None = None
    key: str | None = None
    tenant: str | None = None
    idempotency_key: str | None = None

    @classmethod
    def of(cls, name: str, payload: object, **target: Any) -> "Signal":
        """Return a checked signal.

        Raises `UsageError` that names what is wrong, and `InvalidValueError` for a payload that is
        no JSON or too large.
        """
        check_name(name)
        if target.get("key") is not None:
            check_key(target["key"])
        for what, most, such_as in _TEXTS:
            if target.get(what) is not None:
                check_text(target[what], what=what, chars_max=most, such_as=such_as)
        if (target.get("job") is None) == (target.get("key") is None):
            raise UsageError(
                f"signal {name!r} needs a job or a key, one of the two",
                hint="handle.signal(…), or client.signal(…, key=…)",
            )
        what = f"signal {name!r}"
        text = payload_of_text(encode(payload, what=what, limit=None), what=what)
        return cls(name=name, payload=text, **target)


_TEXTS: Final = (
    ("tenant", NAME_MAX, "acme"),
    ("idempotency_key", IDEMPOTENCY_KEY_CHARS_MAX, "a UUID"),
)
