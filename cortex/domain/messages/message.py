"""Messages of the outbox: what is sent to one subscription, and what became of it."""

import random
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.backoff import Backoff
from cortex.domain.errors import UsageError
from cortex.domain.failure import CREDENTIALS_REFUSED

ATTEMPTS_MAX: Final = 3
"""Attempts by a handler, the log and a channel with a fallback; a subscription may set others."""
BACKOFF: Final = Backoff(base_s=5.0, cap_s=120.0)
JITTER_S: Final = 0.5
PAUSES_S: Final = (
    *(5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1_800.0),
    *(hours * 3600.0 for hours in (1, 2, 4, 8, 12, 20, 24)),
)
"""Pauses between attempts at a receiver outside: they span a restart, a night, a weekend."""
JITTER: Final = 0.1
"""The share that a random draw adds to these pauses."""
LOST_MAX: Final = 10
"""A message fails when this many pods have died, or lost their lease, while they had it."""
LEASE_S: Final = 60.0
ESCALATE_S: Final = 120.0
"""A message waits this long for a channel that is down, then goes to its fallback."""
KEY_MAX: Final = 300
ERROR_MAX: Final = 1_000
"""Characters of a message's last error."""


@attrs.frozen(kw_only=True)
class Redelivery:
    """Attempts of a message, and the pauses between them."""

    attempts: int = ATTEMPTS_MAX
    lasts_days: bool = False
    """Whether the pauses are `PAUSES_S`, or those of `BACKOFF`."""

    def pause_s(self, attempt: int, *, rng: random.Random, least_s: float = 0.0) -> float:
        """Return the pause after a failed attempt, counted from 1."""
        if not self.lasts_days:
            return max(BACKOFF.longest_s(attempt), least_s) + rng.uniform(0.0, JITTER_S)
        pause_s = PAUSES_S[min(attempt, len(PAUSES_S)) - 1]
        return max(pause_s, least_s) * rng.uniform(1.0, 1.0 + JITTER)


AT_ONCE_OR_SOON: Final = Redelivery()
FOR_DAYS: Final = Redelivery(attempts=len(PAUSES_S) + 1, lasts_days=True)


class MessageStatus(StrEnum):
    """The state of a message for one subscription."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SENT = "SENT"
    FAILED = "FAILED"


@attrs.frozen(kw_only=True)
class Message:
    """A message, as its handler or its channel gets it."""

    id: UUID
    """The same on every attempt: a receiver that has seen it does nothing."""
    attempt: int
    """From 1."""
    topic: str
    payload: dict[str, Any]
    key: str | None = None
    headers: dict[str, Any] = attrs.field(factory=dict)
    tenant: str = "default"
    trace: str | None = None
    created_at: datetime
    subscription: str = attrs.field(default="", repr=False)
    escalated_from: str | None = None
    """The subscription by which it could not be sent before."""
    seq: int = attrs.field(default=0, repr=False)
    claim: int = attrs.field(default=0, repr=False)
    """The fence: how often a pod has claimed it."""

    @property
    def document(self) -> Mapping[str, Any]:
        """Its fields for templates."""
        return {
            "id": str(self.id),
            "topic": self.topic,
            "key": self.key,
            "tenant": self.tenant,
            "trace": self.trace,
            "created_at": self.created_at.isoformat(),
            "attempt": self.attempt,
            "payload": self.payload,
        }


@attrs.frozen(kw_only=True)
class Outcome:
    """What one attempt to send a message came to."""

    status: MessageStatus
    error: str | None = None
    delay_s: float = 0.0
    """Until the next attempt, for PENDING."""
    is_counted: bool = True
    """Whether this attempt counts: a message that was handed back unsent keeps its attempts."""
    refusal: str | None = None
    """The code of the error, if the receiver refused the credentials."""


SENT: Final = Outcome(status=MessageStatus.SENT)


def handed_back(delay_s: float = 0.0, error: str | None = None) -> Outcome:
    """Return the outcome of a message that was not sent."""
    return Outcome(status=MessageStatus.PENDING, delay_s=delay_s, error=error, is_counted=False)


def failed(
    attempt: int,
    error: str,
    *,
    code: str | None = None,
    is_final: bool,
    rng: random.Random,
    least_s: float = 0.0,
    redelivery: Redelivery = AT_ONCE_OR_SOON,
) -> Outcome:
    """Return the outcome of a failed attempt: another one later, or none.

    `is_final`: it would fail again. `least_s`: the pause that the receiver asks for.
    """
    refusal = code if code in CREDENTIALS_REFUSED else None
    text = error[:ERROR_MAX]
    if is_final or attempt >= redelivery.attempts:
        return Outcome(status=MessageStatus.FAILED, error=text, refusal=refusal)
    pause_s = redelivery.pause_s(attempt, rng=rng, least_s=least_s)
    return Outcome(status=MessageStatus.PENDING, error=text, delay_s=pause_s, refusal=refusal)


def check_key(key: str | None) -> str | None:
    """Return a key under which messages may be published. Raises `UsageError`."""
    if key is not None and not 0 < len(key) <= KEY_MAX:
        raise UsageError(f"message key of {len(key)} characters, 1 to {KEY_MAX} are possible")
    return key
