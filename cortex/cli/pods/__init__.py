"""`cortex pods`: running pods and their health."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column, only_on_demand
from cortex.cli.target import session
from cortex.domain.confinement import Confinement
from cortex.domain.phrases import NOTHING, age, since_s, size, span
from cortex.domain.safe import safe
from cortex.store import pods as store
from cortex.store import pulse
from cortex.store.drains import with_moved
from cortex.store.pods import PodRow
from cortex.view.cells import Cell
from cortex.view.pods import leaving_text, moved_text, ticks_text, whole_s

ENDED_MAX: Final = 50
LAG_WARN_MS: Final = 100.0
"""From here on, people notice the event loop's lag."""

pods = Group(
    "pods",
    help="List and drain pods, the processes that run jobs.",
    sections={
        "Inspect": {"ls": ("cortex.cli.pods:ls", "List pods and their health.")},
        "Change": {
            "drain": ("cortex.cli.pods.drain:drain", "Stop a pod from taking jobs."),
            "undrain": ("cortex.cli.pods.drain:undrain", "Let a drained pod take jobs again."),
        },
    },
)


@click.command(cls=Command)
@click.option("--all", "with_ended", is_flag=True, help="Include the newest stopped pods.")
@click.pass_obj
def ls(options: Options, *, with_ended: bool) -> None:
    """List pods: state, load, and time since the last heartbeat."""
    output = Output(options)
    with session(options) as call:
        rows = call(with_moved, call(store.page, ended=ENDED_MAX if with_ended else 0))
        ticked_s = None if rows else call(pulse.figures).ticked_s
    empty = "no pod is running: cortex up" if ticked_s is None else ticks_text(ticked_s)
    output.listing("pods", COLUMNS, rows, empty=empty)


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


def _jobs(row: PodRow) -> Cell:
    return Cell(f"{row.running}/{row.slots}", "" if row.running else "dim")


def _workers(row: PodRow) -> Cell:
    return Cell(str(row.workers), "" if row.workers > 1 else "dim")


def _heartbeat(row: PodRow) -> Cell:
    silent_s = _heartbeat_s(row)
    if not row.is_living:
        return Cell(NOTHING, "dim")
    return Cell(span(silent_s), "fail" if silent_s > row.silent_after_s else "")


def _lease_s(row: PodRow) -> float | None:
    return None if row.oldest_lease_at is None else since_s(row, row.oldest_lease_at)


def _lease(row: PodRow) -> Cell:
    seconds = _lease_s(row)
    if seconds is None:
        return Cell(NOTHING, "dim")
    return Cell(span(seconds), "fail" if seconds > row.silent_after_s else "")


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


def _ms(value: float | None, *, warn: float = LAG_WARN_MS) -> Cell:
    if value is None:
        return Cell(NOTHING, "dim")
    return Cell(
        f"{value:.1f}ms" if value < warn else f"{value:.0f}ms", "warn" if value >= warn else ""
    )


COLUMNS: Final[Sequence[Column[PodRow]]] = (
    Column(
        name="name",
        title="pod",
        shown=lambda r: Cell(safe(r.name), "bold"),
        least=14,
    ),
    Column(name="state", shown=_state),
    Column(name="running", title="jobs", shown=_jobs, is_right=True),
    Column(name="workers", shown=_workers, is_right=True, is_spare=True),
    Column(
        name="heartbeat_s", title="heartbeat", value=_heartbeat_s, shown=_heartbeat, is_right=True
    ),
    Column(
        name="oldest_lease_s",
        title="lease",
        value=_lease_s,
        shown=_lease,
        is_right=True,
        is_spare=True,
    ),
    Column(
        name="loop_lag_ms",
        title="loop lag",
        shown=lambda r: _ms(r.loop_lag_ms),
        is_right=True,
    ),
    Column(
        name="rss_bytes",
        title="memory",
        shown=lambda r: Cell(size(r.rss_bytes)),
        is_right=True,
    ),
    Column(name="connections", title="conns", shown=_connections, is_right=True, is_spare=True),
    Column(
        name="hint_latency_ms",
        title="hints",
        shown=lambda r: _ms(r.hint_latency_ms),
        is_right=True,
        is_spare=True,
    ),
    Column(name="threads_lost", title="left behind", shown=_threads, is_right=True, is_spare=True),
    Column(
        name="started_at",
        title="up",
        shown=lambda r: Cell(age(since_s(r, r.started_at))),
        is_right=True,
    ),
    Column(name="confinement", title="commands", shown=_confinement, is_spare=True),
    Column(name="code_version", title="code", shown=_code, is_spare=True),
    Column(name="version", is_spare=True),
    *only_on_demand(
        "id",
        "slots",
        "heartbeat_at",
        "liveness",
        "trouble",
        "trouble_at",
        "draining_at",
        "drain_requested_at",
        "drain_requested_by",
        "drain_reason",
        "phase",
        "phase_at",
        "abort_at",
        "closed_at",
        "ended_at",
        "job_types",
        "oldest_lease_at",
        "longest_claim_at",
        "moved",
    ),
)
"""`lease`: time since the least recent lease renewal among its jobs, or an upper bound if only
other pods' leases were read. `left behind`: threads of sync functions whose time-outs passed.

`conns`: its database sessions; null if not reported. `moved`: for a leaving or drained
pod, what became of the jobs it handed back.
"""
