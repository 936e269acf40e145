"""Effects and quotas on one line each, the details of one effect, and the freeze."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.effect import EffectStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.breakers import FreezeState
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.quotas import QuotaRow
from cortex.view.cells import Cell
from cortex.view.effects import STATES, agreed_text, prospects, remark
from cortex.view.jobs import state_shown
from cortex.view.phrases import age, date_time, exact
from cortex.view.resources.effects import EFFECTS
from cortex.view.resources.quotas import QUOTAS
from cortex.view.steps import numbered_step, step_label
from cortex_tui.render.labelled import Line, labelled
from cortex_tui.render.table import Column, column
from cortex_tui.render.words import countdown

ARGUMENT_CHARS_MAX: Final = 8_000


def is_unknown(row: EffectRow) -> bool:
    """Return whether a person has to record the outcome."""
    return row.status is EffectStatus.UNKNOWN


def effect_words(row: EffectRow) -> str:
    """Name an effect in a question; not safe yet."""
    return f"{row.tool} {short_id(row.id)}"


def why(row: EffectRow) -> str:
    """Return why it has its state, or who set it; not safe yet."""
    return row.why or "" if is_unknown(row) else remark(row)  # keys here resolve unknown ones


def freeze_line(seen: FreezeState | None, now: datetime) -> Cell:
    """Return whether effects may start, and how many jobs wait for that."""
    if seen is None:
        return Cell("")
    count = seen.waiting_jobs
    jobs = "1 job waits" if count == 1 else f"{count:,} jobs wait"
    if not seen.is_frozen:
        return Cell("● effects may begin", "done")
    since = "" if seen.frozen_at is None else f" {age((now - seen.frozen_at).total_seconds())}"
    meaning = f"✗ effects are frozen{since} · {jobs} · by {seen.by}: {seen.reason}"
    return Cell(safe(meaning), "fail")


def effect_head(row: EffectRow | None) -> tuple[Cell, Cell]:
    """Return the two ends of the line above the effect."""
    if row is None:
        return Cell(""), Cell("")
    return Cell(safe(f"{row.tool} {short_id(row.id)}"), "bold"), STATES[row.status]


def effect_lines(row: EffectDetail, width: int, now: datetime) -> Iterator[Line]:
    """Yield the details of one effect, as `effects.show` returns them."""

    def at(moment: datetime | None) -> str:
        if moment is None:
            return ""
        return f"{age((now - moment).total_seconds())} ago ({date_time(moment)})"

    agent = f" of {row.agent} v{row.agent_version}" if row.agent else ""
    job = state_shown(row.job_status, f"effect:{row.id}")
    times = "once" if row.calls_count == 1 else f"{row.calls_count} times, last"
    asked = "can be asked" if row.can_reconcile else "cannot be asked"
    for label, text in (
        ("why", row.why or ""),
        ("job", f"{short_id(row.job_id)} {row.job_type}{agent}, {job}"),
        ("step", numbered_step(row.step, row.key) if row.step else step_label(row.key)),
        ("call", str(row.id)),
        ("intended", at(row.created_at)),
        ("called", f"{times} {at(row.called_at)}; attempt {row.attempt} has it"),
        ("ended", at(row.finished_at)),
        ("other end", f"{asked} what became of the call"),
        ("said", _said(row)),
    ):
        yield from labelled(label, text, width)
    yield from labelled("arguments", exact(row.arguments)[:ARGUMENT_CHARS_MAX], width)
    if row.returned is not None:
        yield from labelled("result", exact(row.returned)[:ARGUMENT_CHARS_MAX], width)
    if is_unknown(row):
        for resolution, meaning in prospects(row).items():
            yield from labelled(resolution, meaning, width, "dim")


def _said(row: EffectDetail) -> str:
    if not row.resolution:
        return agreed_text(row)
    return f"{row.resolution} by {row.resolved_by}: {row.resolved_reason}"


def _resets(row: QuotaRow, now: datetime) -> Cell:
    return Cell(countdown(max(0.0, (row.resets_at - now).total_seconds())))


EFFECT_COLUMNS: Final[Sequence[Column[EffectRow]]] = (
    column(EFFECTS, "id", width=7),
    column(EFFECTS, "tool", width=16),
    column(EFFECTS, "status", width=13),
    column(EFFECTS, "job_id", width=7),
    column(EFFECTS, "created_at", width=4),
    Column(
        title="arguments",
        width=24,
        cell=lambda row, _: Cell(safe(exact(row.arguments)[:ARGUMENT_CHARS_MAX])),
        spare=2,
    ),
    Column(title="why", width=16, cell=lambda row, _: Cell(safe(why(row)), "dim"), grows=True),
)
QUOTA_COLUMNS: Final[Sequence[Column[QuotaRow]]] = (
    column(QUOTAS, "name", width=24),
    column(QUOTAS, "limit", width=12),
    column(QUOTAS, "used", width=10),
    column(QUOTAS, "waiting_jobs", title="jobs", width=6),
    Column(title="resets", width=8, cell=_resets, is_right=True, spare=1),
    column(QUOTAS, "changed_at", width=12, grows=True, spare=2),
)
"""`jobs`: those that wait for room in it. `resets`: time until the use no longer counts."""
