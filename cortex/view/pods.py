"""Describes pods that drain or stop."""

from typing import Final

from cortex.domain.drain import DrainPhase, Moved, MovedGroup, Whereabouts
from cortex.domain.phrases import span
from cortex.store.pods import PodRow
from cortex.view.phrases import since_s

MINUTE_S: Final = 60
DRAINING: Final = "draining"
DOING: Final = {
    DrainPhase.HAND_BACK: "handing back",
    DrainPhase.FLUSH: "writing the rest",
    DrainPhase.SIGN_OFF: "signing off",
}
"""Words for the last phases of a pod; before them it shows as draining."""


def place(pod: str, code_version: str | None) -> str:
    """Return where an attempt ran: a pod and its code; pass the result through `safe`."""
    return pod if code_version is None else f"{pod} (code {code_version})"


def moved_text(row: PodRow, moved: Moved) -> str:
    """Describe where the jobs of a leaving pod went; pass the result through `safe`.

    `3 moved, 0 lost (2 to eu-2, 1 waits)`. "lost" appears only when the pod has no jobs left and
    all of them were checked.
    """
    groups = [group for group in moved.groups if group.what is not Whereabouts.LOST]
    lost = sum(group.count for group in moved.groups if group.what is Whereabouts.LOST)
    total = sum(group.count for group in groups)
    text = f"{'' if moved.is_whole else 'at least '}{total:,} moved"
    if lost or (moved.is_whole and not row.running):
        text += f", {lost:,} lost"
    return f"{text} ({', '.join(_where(group) for group in groups)})" if groups else text


def _where(group: MovedGroup) -> str:
    number = group.count
    match group.what:
        case Whereabouts.RUNS:
            return f"{number:,} to {group.pod or 'a pod'}"
        case Whereabouts.WAITS:
            return f"{number:,} {'waits' if number == 1 else 'wait'}"
        case what:
            return f"{number:,} {what}"


def leaving_text(row: PodRow) -> str:
    """Describe how far a stopping or draining pod is; pass the result through `safe`.

    `draining 12s · jobs 3 · abort in 28s`, or `drained 2m 10s · by ana "deploy"`.
    """
    if row.phase is None and row.drain_requested_at is not None:
        return _drained(row)
    doing = DRAINING if row.phase is None else DOING.get(row.phase, DRAINING)
    since = row.draining_at if doing == DRAINING else row.phase_at
    ends, by = ("abort", row.abort_at) if doing == DRAINING else ("closed", row.closed_at)
    parts = [doing if since is None else f"{doing} {whole_s(since_s(row, since))}"]
    if row.running:
        parts.append(f"jobs {row.running}")
    if by is not None:
        parts.append(f"{ends} in {whole_s(-since_s(row, by))}")
    return " · ".join(parts)


def _drained(row: PodRow) -> str:
    doing = DRAINING if row.running else "drained"
    if row.state == "READY":
        doing = "drain requested"
    since = row.drain_requested_at
    parts = [doing if since is None else f"{doing} {whole_s(since_s(row, since))}"]
    if row.running:
        parts.append(f"jobs {row.running}")
    why = f' "{row.drain_reason}"' if row.drain_reason else ""
    return " · ".join([*parts, f"by {row.drain_requested_by}{why}"])


def whole_s(seconds: float) -> str:
    """Return whole seconds, rounded up and never negative."""
    whole = max(0, int(seconds))
    return span(whole) if whole >= MINUTE_S else f"{whole}s"


def ticks_text(ago_s: float) -> str:
    return f"no pod runs: cortex tick runs the jobs, last {span(ago_s)} ago"
