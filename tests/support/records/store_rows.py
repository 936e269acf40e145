"""Rows of the store as tests make them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cortex.domain.approvals.approval import Approval
from cortex.domain.canonical import canonical, digest, parse
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
        "code_version": "3f9a1c0b2d4e",
        "state": "READY",
        "job_types": ["digest"],
        "tools": [],
        "slots": 8,
        "running": 0,
        "threads_lost": 0,
        "started_at": NOW,
        "heartbeat_at": NOW,
        "liveness": Liveness.LOCK,
        "silent_after_s": 95.0,
        "now": NOW,
    }
    return PodRow(**nothing | ready | fields)


def an_approval(**fields: Any) -> Approval:
    """Return a request that waits for one person, but for these fields."""
    asked = fields.pop("asked", {"customer": "cus_88", "amount": 12.4})
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "said",
            "requested_by",
            "requested_with",
            "edited_by",
            "decided_at",
            "decided_by",
            "decided_with",
            "channel",
            "reason",
            "address",
            "client",
            "token_by",
            "job_head",
            "effect_id",
            "effect_status",
            "schema",
        )
    )
    waiting: dict[str, Any] = {
        "id": UUID(int=1),
        "seq": 1,
        "job_id": UUID(int=1001),
        "lineage_id": UUID(int=1001),
        "attempt": 1,
        "tenant": "default",
        "key": "1 pay approval",
        "tool": "refund",
        "risk": "MED",
        "effect": "money out",
        "reversible": False,
        "policy": "refunds ask",
        "people": 1,
        "agreed": 0,
        "votes": (),
        "status": "PENDING",
        "created_at": NOW,
        "expires_at": NOW + timedelta(hours=1),
        "agent": "refund-bot",
        "agent_id": None,
        "agent_version": 9,
        "job_type": "refund",
        "job_status": "WAITING_FOR_APPROVAL",
        "is_job_due": False,
        "has_link": False,
        "version": 1,
        "on_deny": "tell",
        "on_expiry": "fail",
        "now": NOW,
        "asked": parse(canonical(asked)),
        "asked_text": canonical(asked),
        "asked_digest": digest(canonical(asked)),
    }
    stands = arguments_of(fields.pop("arguments", asked))
    return Approval(**nothing | waiting | stands | fields)


def arguments_of(arguments: Any) -> dict[str, Any]:
    """Return the fields of an approval that hold its arguments."""
    text = canonical(arguments)
    return {"arguments": parse(text), "arguments_text": text, "digest": digest(text)}
