"""How a pod that takes no more jobs is described to people."""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.drain import DrainPhase
from cortex.domain.phrases import since_s, span

MINUTE_S: Final = 60
DRAINING: Final = "draining"
DOING: Final = {
    DrainPhase.HAND_BACK: "handing back",
    DrainPhase.FLUSH: "writing the rest",
    DrainPhase.SIGN_OFF: "signing off",
}
"""What a pod is at in its last phases; before them it is draining."""


def leaving_told(row: Mapping[str, Any]) -> str:
    """Say how far a pod is that was told to end, or that a person drains: to be made safe.

    `draining 12s · jobs 3 · abort in 28s`, or `drained 2m 10s · by ana "deploy"`.
    """
    if row["phase"] is None and row["drain_requested_at"] is not None:
        return _drained(row)
    doing = DOING.get(row["phase"], DRAINING)
    since = row["draining_at"] if doing == DRAINING else row["phase_at"]
    ends, by = ("abort", row["abort_at"]) if doing == DRAINING else ("closed", row["closed_at"])
    parts = [doing if since is None else f"{doing} {whole_s(since_s(row, since))}"]
    if row["running"]:
        parts.append(f"jobs {row['running']}")
    if by is not None:
        parts.append(f"{ends} in {whole_s(-since_s(row, by))}")
    return " · ".join(parts)


def _drained(row: Mapping[str, Any]) -> str:
    if row["state"] == "READY":
        doing = "asked to drain"
    else:
        doing = DRAINING if row["running"] else "drained"
    parts = [f"{doing} {whole_s(since_s(row, row['drain_requested_at']))}"]
    if row["running"]:
        parts.append(f"jobs {row['running']}")
    why = f' "{row["drain_reason"]}"' if row["drain_reason"] else ""
    return " · ".join([*parts, f"by {row['drain_requested_by']}{why}"])


def whole_s(seconds: float) -> str:
    """Seconds as people count: none is split, and none are below zero."""
    whole = max(0, int(seconds))
    return span(whole) if whole >= MINUTE_S else f"{whole}s"
