"""Actions on a job, from the list of jobs and from the job's own screen."""

from collections.abc import Coroutine, Sequence
from decimal import Decimal
from functools import partial
from typing import Final
from uuid import UUID

from textual.events import Key

from cortex.domain.budget import LIMIT_MAX, Unit, worded
from cortex.domain.bulk import BulkVerb
from cortex.domain.dead_letter import DECISIONS, DeadLetterState
from cortex.domain.errors import CortexError
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import HEIR
from cortex.domain.people import Identity
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.safe import safe
from cortex.domain.waiting import SIGNAL, EffectWait
from cortex.store.job_screen import WatchedBudget, WatchedJob
from cortex.store.jobs import JobRow, ListedJob
from cortex.view import dead_letters
from cortex.view.resources.jobs import JOB
from cortex.view.verbs import PAUSE, RESUME
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.job import REASON
from cortex_tui.model.amount import AmountQuestion
from cortex_tui.model.selected import Selected
from cortex_tui.model.signalling import SignalQuestion
from cortex_tui.model.waterfall import WaterfallRow
from cortex_tui.render.job_head import gate, tightest
from cortex_tui.render.job_rows import job_words
from cortex_tui.render.pause_rows import words_of
from cortex_tui.render.words import failed
from cortex_tui.screens import dead_asking
from cortex_tui.screens.reasoned import propose_change, put
from cortex_tui.widgets.strip_line import StripLine

READING: Final = "reading …"


def selected_job(context: AppContext, row: JobRow) -> Selected:
    """Return a job as an object to copy."""
    return selected_step(context, row.id, None)


def selected_step(context: AppContext, job_id: UUID, row: WaterfallRow | None) -> Selected:
    """Return a job as an object to copy, with one of its steps first in the document."""
    key = "" if row is None else row.step_key

    async def document() -> object:
        step = {"step": await context.backend.job.step_document(job_id, key)} if key else {}
        return step | dict(await context.backend.job.document(job_id))

    return Selected(
        id=str(job_id),
        command=f"cortex jobs show {job_id}",
        shape=JOB,
        read=lambda: context.backend.job.show(job_id),
        document=document,
    )


def cancel(context: AppContext, strip: StripLine, row: JobRow | None) -> None:
    if row is None:
        strip.show("no job under the cursor", "dim")
        return
    if row.status.is_terminal:
        strip.show(f"{safe(job_words(row))} has ended: there is nothing to cancel", "warn")
        return
    job_id, by = row.id, context.session.actor
    action = Action(
        question=f"cancel {job_words(row)}",
        command=("jobs", "cancel", str(job_id), "--yes"),
        work=lambda: context.backend.jobs.cancel(job_id, by=by),
    )
    context.actions.propose(strip, action)


def signal(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Ask for a signal to send to a job; the name is that for which it waits."""
    if row is None:
        strip.show("this job is not read yet", "dim")
        return
    if row.status.is_terminal:
        strip.show(f"{safe(job_words(row))} has ended: it receives no signals", "warn")
        return
    job_id, by = row.id, context.session.actor
    awaited = row.waiting_on or ""
    name = awaited.removeprefix(SIGNAL) if awaited.startswith(SIGNAL) else ""
    question = SignalQuestion(safe(job_words(row)), name=name)

    def act() -> Action:
        name, payload = question.name, question.payload
        return Action(
            question=f"send signal {name} to {job_words(row)}",
            command=("jobs", "signal", str(job_id)),
            name=name,
            options=() if payload == "null" else ("--data", payload),
            work=lambda: context.backend.jobs.signal(job_id, name, payload, by=by),
        )

    put(context, strip, question, act)


def retry(
    context: AppContext, strip: StripLine, row: JobRow | None
) -> Coroutine[object, object, None] | None:
    """Ask whether to retry a job now; for a failed one, return the coroutine that asks.

    A failed job is continued by a new job: question and action are those of its dead letter.
    """
    if row is None:
        strip.show("no job under the cursor", "dim")
        return None
    if row.status is JobStatus.FAILED:
        if (refusal := context.actions.why_not()) is not None:
            strip.show(refusal, "warn")
            return None
        if row.error_code not in DECISIONS:
            return _retry_failed(context, strip, row, typed=strip.expect(READING))
        # People decided that: it is no dead letter, and the new job asks them again.
    elif row.status.is_terminal:
        strip.show(f"{safe(job_words(row))} has ended: it is not tried again", "warn")
        return None
    job_id, by = row.id, context.session.actor
    question = f"retry now {job_words(row)}"
    if row.status is JobStatus.FAILED:
        question = f"ask again for {job_words(row)}: {HEIR}"
    action = Action(
        question=question,
        command=("jobs", "retry", str(job_id)),
        work=lambda: context.backend.jobs.retry(job_id, by=by),
    )
    context.actions.propose(strip, action)
    return None


async def _retry_failed(
    context: AppContext, strip: StripLine, row: JobRow, *, typed: Sequence[Key]
) -> None:
    """Ask whether to continue a failed job with a new one.

    `typed`: the return value of the strip's `expect`.
    """
    try:
        (dead_letter,) = await context.backend.dead.of_jobs([row.id])
    except CortexError as error:
        strip.show(f"✗ {failed(error)}", "fail")
        return
    if not strip.may_ask:
        strip.drop(READING)
        return  # the operator has left this screen
    if not DeadLetterState(dead_letter.state).is_unresolved:
        strip.show(f"{safe(job_words(row))} {safe(dead_letters.on_retry(dead_letter))}", "warn")
        return
    dead_asking.ask_one(
        context,
        strip,
        BulkVerb.RETRY,
        dead_letter,
        command=("jobs", "retry"),
        what=HEIR,
        typed=typed,
    )


async def pause_queue(
    context: AppContext, strip: StripLine, row: ListedJob, *, typed: Sequence[Key]
) -> None:
    """Ask whether to pause the queue of a job, or to resume it.

    `typed`: the return value of the strip's `expect`.
    """
    target = Pausable(PauseKind.QUEUE, row.queue_name or "")
    follows = "all its jobs wait until it is resumed"
    await _pause(context, strip, target, follows, typed=typed)


def pause(
    context: AppContext, strip: StripLine, row: WatchedJob | None
) -> Coroutine[object, object, None] | None:
    """Return the coroutine that asks whether to pause one job, or to resume it."""
    if row is None:
        strip.show("this job is not read yet", "dim")
        return None
    if row.status.is_terminal:
        strip.show(f"{safe(job_words(row))} has ended: there is nothing to pause", "warn")
        return None
    if (refusal := context.actions.why_not()) is not None:
        strip.show(refusal, "warn")
        return None
    target = Pausable(PauseKind.JOB, str(row.id))
    follows = "it waits until it is resumed"
    return _pause(context, strip, target, follows, typed=strip.expect(READING))


async def _pause(
    context: AppContext,
    strip: StripLine,
    target: Pausable,
    follows: str,
    *,
    typed: Sequence[Key],
) -> None:
    """Ask whether to pause a target, or to resume a paused one."""
    queues = context.backend.queues
    try:
        is_paused = bool(await queues.pauses(target))
    except CortexError as error:
        strip.show(f"✗ {failed(error)}", "fail")
        return
    if not strip.may_ask:
        strip.drop(READING)
        return  # the operator has left this screen
    if is_paused:
        resume(context, strip, target, typed=typed)
        return
    text = f"pause {words_of(target)}"
    propose_change(
        context,
        strip,
        PAUSE,
        text,
        name=str(target),
        work=partial(queues.pause, target),
        asked=f"{text}: {follows}",
        typed=typed,
    )


def resume(
    context: AppContext,
    strip: StripLine,
    target: Pausable,
    *,
    typed: Sequence[Key] = (),
) -> None:
    """Ask whether to end a pause."""
    work, text = partial(context.backend.queues.resume, target), f"resume {words_of(target)}"
    propose_change(context, strip, RESUME, text, name=str(target), work=work, typed=typed)


def open_origin(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Open the job that this one continues, or else the one that submitted it."""
    other = None if row is None else row.origin_id or row.parent_id
    if other is None:
        strip.show("this job does not continue another one, and has no parent", "dim")
    else:
        context.open("job", other)


def open_gate(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Go to the request or effect that the job waits for."""
    awaited = None if row is None else gate(row)
    if awaited is None:
        strip.show("this job waits for neither an approval nor an unknown effect", "dim")
    elif isinstance(awaited, EffectWait):
        context.open("effects", awaited.id)
    else:
        context.seek(awaited.id)


def open_logs(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Open what the job's code logged and printed."""
    if row is None:
        strip.show("this job is not read yet", "dim")
    else:
        context.open("logs", row.id)


def open_tree(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Open the job with those that it submitted."""
    if row is None:
        strip.show("this job is not read yet", "dim")
    elif row.has_children is False:
        strip.show("this job has submitted no other job", "dim")
    else:
        context.open("tree", row.id)


def raise_budget(context: AppContext, strip: StripLine, row: WatchedJob | None) -> None:
    """Ask for a new limit of the budget that limits the job most."""
    budget = None if row is None else tightest(row)
    if budget is None:
        strip.show("no budget limits this job; set one: cortex budgets set --job ID", "dim")
        return
    if (refusal := context.actions.why_not()) is not None:
        strip.show(refusal, "warn")
        return
    limit, unit = budget.limit_amount, budget.unit
    by = context.session.identity
    question = AmountQuestion(
        safe(f"raise {budget.name} from {worded(limit, unit)}"),
        why_not=lambda amount: _why_not(amount, limit=limit, unit=unit),
    )

    def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- what the strip calls
        if not is_agreed or question.amount is None:
            strip.show("nothing was done", "dim")
            return
        context.actions.agreed(strip, _raising(context, budget, question.amount, by=by))

    strip.ask(question, answered)


def _raising(context: AppContext, budget: WatchedBudget, to: Decimal, *, by: Identity) -> Action:
    name = budget.name
    return Action(
        question=f"raise {name} to {worded(to, budget.unit)}",
        command=("budgets", "raise"),
        name=name,
        options=("--to", f"{to:f}", "--reason", REASON),
        work=lambda: context.backend.job.raise_budget(name, to=to, by=by),
    )


def _why_not(amount: Decimal, *, limit: Decimal, unit: Unit) -> str:
    if unit is Unit.TOKENS and amount != amount.to_integral_value():
        return "whole tokens"
    if amount <= limit:
        return f"more than {worded(limit, unit)}"
    return "" if amount <= LIMIT_MAX else f"{LIMIT_MAX:,} at most"
