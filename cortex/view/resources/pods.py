"""Pods: running processes and their health."""

from typing import Final

from cortex.domain.confinement import Confinement
from cortex.domain.errors import Trouble
from cortex.domain.safe import safe
from cortex.store.pods import PodRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age, since_s, size
from cortex.view.pods import leaving_text, moved_text, whole_s
from cortex.view.resource import Field, Resource, on_demand

LAG_WARN_MS: Final = 100.0
"""From here on, people notice the event loop's lag."""
SECONDS_FROM_MS: Final = 10_000.0


def _heartbeat_s(row: PodRow) -> float:
    return since_s(row, row.heartbeat_at)


def _state(row: PodRow) -> Cell:
    name = row.state
    if row.is_living and _heartbeat_s(row) > row.silent_after_s:
        return Cell("! silent", "fail")
    if name == "DRAINING" or (name == "READY" and row.drain_requested_at is not None):
        moved = f" · {moved_text(row, row.moved)}" if row.moved is not None else ""
        return Cell(safe(f"◆ {leaving_text(row)}{moved}"), "warn")
    if name == "READY" and row.trouble is not None:
        text = row.trouble.replace("_", " ")
        since = "" if row.trouble_at is None else f" {whole_s(since_s(row, row.trouble_at))}"
        return Cell(f"! {text}{since}", "fail")
    glyphs = {"READY": "●", "STOPPED": "○", "DEAD": "✗"}
    styles = {"READY": "done", "STOPPED": "dim", "DEAD": "fail"}
    return Cell(f"{glyphs.get(name, '?')} {name.lower()}", styles.get(name, ""))


def _name(row: PodRow) -> Cell:
    return Cell(safe(row.name), "bold" if row.is_living else "dim")


def _jobs(row: PodRow) -> Cell:
    return Cell(f"{row.running}/{row.slots}", "" if row.running else "dim")


def _workers(row: PodRow) -> Cell:
    return Cell(str(row.workers), "" if row.workers > 1 else "dim")


def _silence(row: PodRow, seconds: float | None) -> Cell:
    """Return how long ago the pod gave a sign; alarming when that is too long."""
    if seconds is None:
        return Cell(NOTHING, "dim")
    return Cell(age(seconds), "alarm" if seconds > row.silent_after_s else "")


def _lease_s(row: PodRow) -> float | None:
    return None if row.oldest_lease_at is None else since_s(row, row.oldest_lease_at)


def _memory(row: PodRow) -> Cell:
    is_known = row.is_living and row.rss_bytes is not None
    return Cell(size(row.rss_bytes)) if is_known else Cell(NOTHING, "dim")


def _up(row: PodRow) -> Cell:
    ended_at = None if row.is_living else row.ended_at
    return Cell(age(((ended_at or row.now) - row.started_at).total_seconds()), "dim")


def _connections(row: PodRow) -> Cell:
    number = row.connections
    return Cell(NOTHING, "dim") if number is None else Cell(str(number))


def _threads(row: PodRow) -> Cell:
    return Cell(str(row.threads_lost), "warn" if row.threads_lost else "dim")


def _confinement(row: PodRow) -> Cell:
    text = row.confinement
    if text is None:
        return Cell(NOTHING, "dim")
    return Cell(safe(text), "fail" if text in {Confinement.UNSAFE, Confinement.NONE} else "")


def _code(row: PodRow) -> Cell:
    return Cell(NOTHING, "dim") if row.code_version is None else Cell(safe(row.code_version))


def _delay(row: PodRow, value_ms: float | None) -> Cell:
    """Return a delay that a living pod measured, in at most seven cells."""
    if value_ms is None or not row.is_living:
        return Cell(NOTHING, "dim")
    if value_ms < LAG_WARN_MS:
        return Cell(f"{value_ms:.1f}ms")
    text = f"{value_ms:.0f}ms" if value_ms < SECONDS_FROM_MS else f"{value_ms / 1000:.1f}s"
    return Cell(text, "warn")


FIELDS: Final = (
    Field(
        name="name",
        title="pod",
        shown=_name,
        least=14,
    ),
    Field(name="state", shown=_state),
    Field(name="running", doc="running jobs", title="jobs", shown=_jobs, is_right=True),
    Field(
        name="workers",
        doc="its processes that live, see `cortex up --workers`",
        shown=_workers,
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="heartbeat_s",
        doc="time since the last heartbeat",
        title="heartbeat",
        value=_heartbeat_s,
        shown=lambda r: _silence(r, _heartbeat_s(r) if r.is_living else None),
        is_right=True,
    ),
    Field(
        name="oldest_lease_s",
        doc="time since the least recent lease renewal among its jobs, or an upper bound",
        title="lease",
        value=_lease_s,
        shown=lambda r: _silence(r, _lease_s(r)),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="loop_lag_ms",
        doc="worst delay of its event loop",
        title="loop lag",
        shown=lambda r: _delay(r, r.loop_lag_ms),
        is_right=True,
    ),
    Field(
        name="rss_bytes",
        doc="resident memory",
        title="memory",
        shown=_memory,
        is_right=True,
    ),
    Field(
        name="connections",
        doc="its database sessions; null if the server does not report them",
        title="conns",
        shown=_connections,
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="hint_latency_ms",
        doc="delay of a notification; null: none arrives",
        title="hints",
        shown=lambda r: _delay(r, r.hint_latency_ms),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="threads_lost",
        doc="threads of sync functions that time-outs left behind and that have not ended",
        title="left behind",
        shown=_threads,
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="started_at",
        title="up",
        shown=_up,
        is_right=True,
    ),
    Field(
        name="confinement",
        doc="what confines agents' programs; `unsafe`: unconfined by the operator's setting",
        kind=Confinement | None,
        title="commands",
        shown=_confinement,
        is_spare=True,
    ),
    Field(
        name="code_version",
        doc="of the application's code: setting `code_version`, else a digest of its sources",
        title="code",
        shown=_code,
        is_spare=True,
    ),
    Field(name="version", doc="of Cortex", style="dim", is_spare=True),
    Field(
        name="trouble", doc="trouble of its database calls", kind=Trouble | None, is_default=False
    ),
    *on_demand("id", "job_types", "tools", "ended_at"),
    *on_demand(
        slots="maximum number of running jobs",
        heartbeat_at="last heartbeat",
        liveness="what proves that it lives: only `heartbeat` behind a pooler",
        trouble_at="start of the trouble",
        draining_at="when it was asked to end, or began to drain",
        drain_requested_at="when a person asked it to drain and stay",
        drain_requested_by="the person who asked",
        drain_reason="why",
        phase="current phase of the shutdown; for a dead pod, the last one",
        phase_at="start of that phase",
        abort_at="when running jobs are, or were, handed back",
        closed_at="latest end of the shutdown",
        oldest_lease_at="least recent lease renewal among its jobs, or a lower bound",
        longest_claim_at="start of its longest-held job; null: none or unknown",
        moved="what became of the jobs that it handed back while draining or shutting down",
    ),
)

PODS: Final = Resource(
    name="Pod",
    noun="pods",
    doc="One run of `cortex up`.",
    row=PodRow,
    fields=FIELDS,
    unlisted=frozenset({"now", "silent_after_s", "is_living", "is_leaving"}),
)
