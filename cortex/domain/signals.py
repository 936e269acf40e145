"""Signals that steps of jobs have received."""

from datetime import datetime
from uuid import UUID

import attrs


@attrs.frozen(kw_only=True)
class ReceivedSignal:
    """A signal that belongs to one step, and to no other."""

    id: UUID
    payload: str
    """JSON text."""
    sent_at: datetime
