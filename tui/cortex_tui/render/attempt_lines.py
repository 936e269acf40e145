"""The attempts at a step: where each ran, how it ended, and how it differs from the last."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from cortex.domain.job import JobStatus
from cortex.store.job_screen import StepDetail, WatchedJob, WatchedMove
from cortex.store.jobs import EndedAttempt
from cortex.view.phrases import day_time, money
from cortex.view.pods import place
from cortex_tui.model.waterfall import CALM_ENDINGS, ENDINGS, WaterfallRow, endings
from cortex_tui.render.labelled import Line, labelled, text_lines, titled
from cortex_tui.render.words import span, tokens


def attempt_lines(
    row: WaterfallRow, detail: StepDetail, job: WatchedJob, now: datetime, width: int
) -> Iterator[Line]:
    """Yield the attempts that ran a step; for a row without a step, all known attempts."""
    ended = {each.attempt: each for each in endings(job)}
    began = _began(detail)
    if row.since:
        tried = range(row.since, row.attempt + 1)
        summary = "it was tried once" if len(tried) == 1 else f"it was tried {len(tried)} times"
    else:
        tried = range(min(ended, default=job.attempt), job.attempt + 1)
        summary = f"the attempts of the job: {job.attempt}"
    yield from text_lines(summary, width)
    before: int | None = None
    for attempt in tried:
        yield from titled(f"attempt {attempt}")
        yield from _where(attempt, before, began, width)
        if attempt == row.attempt and row.number is not None:
            yield from _committed(row, width)
        elif attempt in ended:
            yield from _ended(ended[attempt], ended.get(before or 0), began, width)
        elif attempt == job.attempt and job.finished_at is None:
            since = began.get(attempt)
            goes = "" if since is None else f" for {span((now - since.at).total_seconds())}"
            yield from labelled("now", f"goes on{goes}", width, "run")
        before = attempt


def _began(detail: StepDetail) -> dict[int, WatchedMove]:
    """Return how attempts started, as far as the history goes back."""
    found: dict[int, WatchedMove] = {}
    for moved in detail.history:
        if moved.new is JobStatus.RUNNING:
            found.setdefault(moved.attempt, moved)
    return found


def _where(
    attempt: int, before: int | None, began: Mapping[int, WatchedMove], width: int
) -> Iterator[Line]:
    if attempt not in began:
        return
    start = began[attempt]
    yield from labelled("began", day_time(start.at), width)
    last = None if before is None else began.get(before)
    was = "" if last is None or last.pod == start.pod else f", before on {_place(last)}"
    if start.pod or was:
        yield from labelled("pod", f"{_place(start)}{was}", width, "warn" if was else "")


def _place(start: WatchedMove) -> str:
    return "none" if start.pod is None else place(start.pod, start.code_version)


def _committed(row: WaterfallRow, width: int) -> Iterator[Line]:
    summary = "done"
    if row.ended is not None:
        summary += f" in {span((row.ended - row.began).total_seconds())} · {day_time(row.ended)}"
    yield from labelled("ended", summary, width, "done")
    used = [] if row.tokens is None else [f"{tokens(*row.tokens)} tokens"]
    used += [] if row.cost is None else [money(row.cost)]
    yield from labelled("used", " · ".join(used), width)


def _ended(
    ended: EndedAttempt,
    before: EndedAttempt | None,
    began: Mapping[int, WatchedMove],
    width: int,
) -> Iterator[Line]:
    """Return how an attempt ended early, and whether the previous one ended the same way."""
    outcome, at = ended.outcome, ended.ended_at
    is_calm = outcome in CALM_ENDINGS
    summary = f"{ENDINGS.get(outcome) or outcome} · {day_time(at)}"
    yield from labelled("ended", summary, width, "retry" if is_calm else "fail")
    if ended.error:
        code = ended.error_code or ended.error_class
        is_same = before is not None and _error(before) == _error(ended)
        error = f"{ended.error}" + (f" ({code})" if code else "")
        same = f"the same as in attempt {before.attempt}" if is_same and before else error
        yield from labelled("error", same, width, "dim" if is_same else "fail")
    following = began.get(ended.attempt + 1)
    until = ended.due_at if following is None else following.at
    if until is not None and until > at:
        waits = "waited" if following else "waits"
        yield from labelled("then", f"{waits} {span((until - at).total_seconds())}", width, "dim")


def _error(ended: EndedAttempt) -> tuple[object, ...]:
    return ended.error, ended.error_code, ended.error_class
