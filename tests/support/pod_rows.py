"""Rows of the store as tests make them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cortex.domain.drain import Liveness
from cortex.store.pods import PodRow

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def a_pod_row(**fields: Any) -> PodRow:
    """Return a ready pod that runs nothing, but for these fields."""
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "ended_at",
            "confinement",
            "loop_lag_ms",
            "rss_bytes",
            "hint_latency_ms",
            "drain_requested_at",
            "drain_requested_by",
            "drain_reason",
            "draining_at",
            "phase",
            "phase_at",
            "abort_at",
            "closed_at",
            "trouble",
            "trouble_at",
            "oldest_lease_at",
            "longest_claim_at",
            "connections",
        )
    )
    ready: dict[str, Any] = {
        "id": UUID(int=1),
        "name": "eu-1",
        "version": "1.4.2",
        "state": "READY",
        "job_types": ["digest"],
        "tools": [],
        "slots": 8,
        "running": 0,
        "started_at": NOW,
        "heartbeat_at": NOW,
        "silent_after_s": 95.0,
        "liveness": Liveness.LOCK,
        "now": NOW,
    }
    return PodRow(**nothing | ready | fields)
