"""Signals in words."""

from typing import Final

from cortex.domain.key_shapes import masked_value
from cortex.store.signals import SignalRow
from cortex.view.phrases import exact

PAYLOAD_CHARS_MAX: Final = 60


def signal_text(row: SignalRow) -> str:
    """Say what was sent, and what became of it; may hold characters that are not safe to print."""
    to = "" if row.key is None else f" to key {row.key}"
    by = "" if row.sent_by is None else f" by {row.sent_by}"
    fate = "waits" if row.taken_step is None else f"received by step {row.taken_step}"
    return f"{row.name}{to}{by} · {payload_text(row)} · {fate}"


def payload_text(row: SignalRow) -> str:
    """Return the beginning of a small content, else its size."""
    if row.payload is None and row.size_bytes > len("null"):
        return f"{row.size_bytes:,} bytes"
    text = "null" if row.payload is None else exact(masked_value(row.payload))
    is_long = len(text) > PAYLOAD_CHARS_MAX
    return f"{text[:PAYLOAD_CHARS_MAX]}…" if is_long else text
