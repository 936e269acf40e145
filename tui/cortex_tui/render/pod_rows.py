"""Pods and worker queues on one line each, and the details of the one under the cursor."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cortex.domain.drain import DrainPhase, Moved
from cortex.domain.safe import safe
from cortex.store.pods import PodRow
from cortex.store.queues import QueueRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age
from cortex.view.pods import moved_text
from cortex.view.resources.pods import PODS
from cortex.view.resources.queues import QUEUES
from cortex_tui.render.table import Column, column
from cortex_tui.render.words import short

NONE: Final = Cell(NOTHING, "dim")
NAME_CELLS: Final = 16
STATE_CELLS: Final = 18
_DOING: Final = {
    DrainPhase.HAND_BACK: "handing back",
    DrainPhase.FLUSH: "writing",
    DrainPhase.SIGN_OFF: "signing off",
}
"""The last phases of a pod; before them it is draining."""
_TROUBLE: Final = {"no_connections": "no conns", "out_of_memory": "no memory"}
"""Troubles whose own word is longer than the column."""


def is_drained(row: PodRow) -> bool:
    """Whether a person drained the pod; it keeps running."""
    return row.is_living and row.drain_requested_at is not None and row.phase is None


def pod_words(row: PodRow) -> str:
    """Name a pod in a question; not safe yet."""
    return f"{row.name} ({row.running} of {row.slots} jobs)"


def pod_about(row: PodRow) -> str:
    """Describe a pod, its database sessions, and the jobs that it can run; not safe yet."""
    types = f"runs {', '.join(sorted(row.job_types))}" if row.job_types else ""
    sessions = _sessions(row.connections) if row.is_living else ""
    workers = f"{row.workers} workers" if row.workers > 1 else ""
    return " · ".join(filter(None, (str(row.id), workers, sessions, types)))


def _sessions(number: int | None) -> str:
    if number is None:
        return "its connections are unknown"
    return "1 connection" if number == 1 else f"{number} connections"


def pod_doing(row: PodRow, moved: Moved | None, now: datetime) -> str:
    """Return where its jobs went and who drains it; not safe yet."""
    parts = ("" if moved is None else moved_text(row, moved), _drained_text(row, now))
    return " · ".join(filter(None, parts))


def pod_holds(row: PodRow, now: datetime) -> str:
    """Return the code that it runs, and what it holds for how long; not safe yet."""
    parts = [] if row.code_version is None else [f"code {row.code_version}"]
    if row.threads_lost and row.is_living:
        parts.append(f"{row.threads_lost} thread{'' if row.threads_lost == 1 else 's'} left behind")
    if row.oldest_lease_at is not None:
        parts.append(f"oldest lease {_steady(row.oldest_lease_at, now)}")
    if row.longest_claim_at is not None:
        parts.append(f"longest job {_steady(row.longest_claim_at, now)}")
    return " · ".join(parts)


def _steady(instant: datetime, now: datetime) -> str:
    """Return an age at a fixed width, so that the text after it stays in place."""
    return f"{age(_since_s(now, instant)):>4}"


def goes_where(row: PodRow, pods: Sequence[PodRow]) -> str:
    """Say in a question which pods report that they can take the jobs of a pod."""
    if not row.running:
        return ""
    takers = [
        each
        for each in pods
        if each.id != row.id
        and each.state == "READY"
        and each.drain_requested_at is None
        and set(each.job_types) & set(row.job_types)
    ]
    if not takers:
        return ": no other pod takes them, they wait"
    free = sum(max(0, each.slots - each.running) for each in takers)
    slots = "no free slot" if not free else f"{free} free slot{'' if free == 1 else 's'}"
    return f": they move to {len(takers)} other{'s' if len(takers) > 1 else ''} with {slots}"


def queue_about(row: QueueRow, now: datetime) -> str:
    """Return why a queue is paused, or a description of it; not safe yet."""
    if row.paused_at is not None:
        return _paused(row, now)
    return "jobs without a queue" if row.queue is None else "its jobs run one after another"


# --- pods


def _since_s(now: datetime, instant: datetime | None) -> float:
    return 0.0 if instant is None else (now - instant).total_seconds()


def _drained_text(row: PodRow, now: datetime) -> str:
    if not is_drained(row):
        return ""
    why = f' "{row.drain_reason}"' if row.drain_reason else ""
    since = "" if row.drain_requested_at is None else f" {_at(row.drain_requested_at, now)}"
    return f"drained by {row.drain_requested_by}{since}{why}"


def _at(instant: datetime, now: datetime) -> str:
    ago = age(_since_s(now, instant))
    return ago if ago == "now" else f"{ago} ago"


def _state(row: PodRow, now: datetime) -> Cell:
    if not row.is_living:
        glyph, style = ("✗", "fail") if row.state == "DEAD" else ("○", "dim")
        # When a session has only just ended, no pod has recorded the time yet.
        ago = "" if row.ended_at is None else f" {age(_since_s(now, row.ended_at))}"
        return Cell(f"{glyph} {row.state.lower()}{ago}", style)
    silent_s = _since_s(now, row.heartbeat_at)
    if silent_s > row.silent_after_s:
        return Cell(f"! silent {age(silent_s)}", "alarm")
    if is_drained(row):
        return Cell(f"◆ {_drained(row)} {age(_since_s(now, row.drain_requested_at))}", "warn")
    if row.state == "DRAINING":
        return Cell(f"◆ {_leaving(row, now)}", "warn")
    if row.trouble is not None:
        text = _TROUBLE.get(row.trouble, row.trouble.replace("_", " "))
        return Cell(safe(f"! {text} {age(_since_s(now, row.trouble_at))}"), "fail")
    return Cell("● ready", "done")


def _drained(row: PodRow) -> str:
    if row.state == "READY":
        return "to drain"
    return "draining" if row.running else "drained"


def _leaving(row: PodRow, now: datetime) -> str:
    """Return the progress of a pod that shuts down: `draining 12s/45s`, of its deadline."""
    doing = None if row.phase is None else _DOING.get(row.phase)
    since, by = row.draining_at, row.abort_at
    if doing is not None:
        since, by = row.phase_at, row.closed_at
    passed = f"{max(0, int(_since_s(now, since)))}s"
    of = "" if since is None or by is None else f"/{_since_s(by, since):.0f}s"
    return f"{doing or 'draining'} {passed}{of}"


def _jobs(row: PodRow, _: datetime) -> Cell:
    return Cell(f"{short(row.running)}/{short(row.slots)}", "" if row.running else "dim")


def _note(row: PodRow, now: datetime) -> Cell:
    return Cell(safe(_drained_text(row, now)), "warn")


POD_COLUMNS: Final[Sequence[Column[PodRow]]] = (
    column(PODS, "name", width=NAME_CELLS),
    Column(title="state", width=STATE_CELLS, cell=_state),
    Column(title="jobs", width=7, cell=_jobs, is_right=True),
    column(PODS, "oldest_lease_s", width=5, spare=2),
    column(PODS, "heartbeat_s", title="beat", width=5),
    column(PODS, "loop_lag_ms", title="lag", width=7),
    column(PODS, "rss_bytes", width=7, spare=1),
    column(PODS, "connections", width=5, spare=2),
    column(PODS, "started_at", width=4),
    column(PODS, "code_version", width=12, spare=3),
    column(PODS, "hint_latency_ms", width=7, spare=5),
    column(PODS, "version", width=12, spare=4),
    Column(title="", width=24, cell=_note, grows=True, spare=6),
)
"""`lease`: the age of the lease renewal that is oldest among its jobs. `conns`: its sessions, as
far as the server can see them. `beat`: the age of its last heartbeat. `hints`: the latency of a
notification.
"""


# --- queues


def _paused(row: QueueRow, now: datetime) -> str:
    since = "" if row.paused_at is None else f" {_at(row.paused_at, now)}"
    return f'paused by {row.paused_by}{since} "{row.reason}"'


def _standing(row: QueueRow, now: datetime) -> Cell:
    if row.paused_at is not None:
        return Cell(f"◆ paused {age(_since_s(now, row.paused_at))}", "warn")
    return Cell("● open", "done")


def _number(row: QueueRow, number: int) -> Cell:
    more = "+" if row.is_capped and number >= max(row.ready, row.running, row.later) else ""
    return Cell(f"{short(number)}{more}", "" if number else "dim")


def _why(row: QueueRow, now: datetime) -> Cell:
    return Cell(safe(_paused(row, now)) if row.paused_at is not None else "", "warn")


QUEUE_COLUMNS: Final[Sequence[Column[QueueRow]]] = (
    column(QUEUES, "queue", width=NAME_CELLS),
    Column(title="state", width=STATE_CELLS, cell=_standing),
    Column(title="runs", width=7, cell=lambda row, _: _number(row, row.running), is_right=True),
    Column(title="ready", width=5, cell=lambda row, _: _number(row, row.ready), is_right=True),
    column(QUEUES, "oldest_ready_s", title="oldest", width=7),
    Column(title="later", width=6, cell=lambda row, _: _number(row, row.later), is_right=True),
    Column(title="", width=12, cell=_why, grows=True, spare=1),
)
"""As wide as the columns of the pods above. `oldest`: how long the first task has been ready."""
