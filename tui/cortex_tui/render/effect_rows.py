"""Effects and quotas on one line each, the details of one effect, and the freeze."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from cortex.domain.effect import EffectStatus
from cortex.domain.phrases import age, date_time, exact, short_id
from cortex.domain.quota import Quota
from cortex.domain.safe import safe
from cortex.store.breakers import FreezeState
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.quotas import QuotaRow
from cortex.view.cells import Cell
from cortex.view.effects import STATES, prospects
from cortex.view.jobs import state_shown
from cortex.view.steps import numbered_step, step_label
from cortex_tui.render.job_rows import NONE
from cortex_tui.render.labelled import Line, labelled
from cortex_tui.render.table import Column
from cortex_tui.render.words import countdown, short

NEARLY: Final = Decimal("0.8")
"""From this share on a quota is nearly used up."""
ARGUMENT_CHARS_MAX: Final = 8_000


def is_unknown(row: EffectRow) -> bool:
    """Return whether a person has to record the outcome."""
    return row.status is EffectStatus.UNKNOWN


def effect_words(row: EffectRow) -> str:
    """Name an effect in a question; not safe yet."""
    return f"{row.tool} {short_id(row.id)}"


def why(row: EffectRow) -> str:
    """Return why it has its state, or who set it; not safe yet."""
    if row.resolution and not is_unknown(row):  # another call may have made it unknown again
        return f"{row.resolution}, by {row.resolved_by}"
    return str(row.why or "")


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
        return ""
    return f"{row.resolution} by {row.resolved_by}: {row.resolved_reason}"


def _state(row: EffectRow, _: datetime) -> Cell:
    return STATES[row.status]


def _limit(row: QuotaRow, _: datetime) -> Cell:
    quota = row.quota
    return Cell(safe(quota.worded(quota.limit)))


def _used(row: QuotaRow, _: datetime) -> Cell:
    used, limit = row.used, row.limit_amount
    style = "fail" if used >= limit else "warn" if used >= NEARLY * limit else ""
    return Cell(Quota.plain(used), style)


def _waiting(row: QuotaRow, _: datetime) -> Cell:
    return Cell(short(row.waiting_jobs), "warn") if row.waiting_jobs else NONE


def _resets(row: QuotaRow, now: datetime) -> Cell:
    return Cell(countdown(max(0.0, (row.resets_at - now).total_seconds())))


def _set(row: QuotaRow, now: datetime) -> Cell:
    ago = age((now - row.changed_at).total_seconds())
    return Cell(safe(f"{ago} by {row.changed_by}: {row.reason}"), "dim")


EFFECT_COLUMNS: Final[Sequence[Column[EffectRow]]] = (
    Column(title="id", width=7, cell=lambda row, _: Cell(short_id(row.id), "bold")),
    Column(title="tool", width=16, cell=lambda row, _: Cell(safe(row.tool))),
    Column(title="state", width=13, cell=_state),
    Column(title="job", width=7, cell=lambda row, _: Cell(short_id(row.job_id))),
    Column(
        title="age",
        width=4,
        cell=lambda row, now: Cell(age((now - row.created_at).total_seconds()), "dim"),
        is_right=True,
    ),
    Column(
        title="arguments",
        width=24,
        cell=lambda row, _: Cell(safe(exact(row.arguments)[:ARGUMENT_CHARS_MAX])),
        spare=2,
    ),
    Column(title="why", width=16, cell=lambda row, _: Cell(safe(why(row)), "dim"), grows=True),
)
QUOTA_COLUMNS: Final[Sequence[Column[QuotaRow]]] = (
    Column(title="quota", width=24, cell=lambda row, _: Cell(safe(row.name), "bold")),
    Column(title="limit", width=12, cell=_limit, is_right=True),
    Column(title="used", width=10, cell=_used, is_right=True),
    Column(title="jobs", width=6, cell=_waiting, is_right=True),
    Column(title="resets", width=8, cell=_resets, is_right=True, spare=1),
    Column(title="set", width=12, cell=_set, grows=True, spare=2),
)
"""`jobs`: those that wait for room in it. `anew in`: time until the use no longer counts."""
