"""`cortex pauses`, `cortex pause`, `cortex resume`: which jobs do not start."""

import shlex
from collections.abc import Awaitable, Callable

import click
from click.shell_completion import CompletionItem

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import jobs, queues
from cortex.store import pauses as store
from cortex.store.queues import QueueRow
from cortex.view.resources.pauses import PAUSES
from cortex.view.verbs import PAUSE, RESUME


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a kind, then a name of that kind; bash makes three words of `type:digest`."""
    typed = "".join(context.params.get("targets") or ()) + incomplete
    kind, colon, name = typed.partition(":")
    if not colon:
        kinds = [f"{each}:" if each is not PauseKind.ALL else str(each) for each in PauseKind]
        return [CompletionItem(each) for each in kinds if each.startswith(kind)]
    if kind not in list(PauseKind) or kind == PauseKind.ALL:
        return []
    found = known(kind)(context, parameter, name)
    return found if incomplete in {name, ":"} else _after(f"{kind}:", found)


def _complete_paused(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete what is paused, whole or after its colon."""
    typed = "".join(context.params.get("targets") or ()) + incomplete
    kind, colon, name = typed.partition(":")
    found = known("pause")(context, parameter, typed)
    if not colon or incomplete not in {name, ":"}:
        return found
    return [CompletionItem(each.value[len(kind) + 1 :], help=each.help) for each in found]


def _after(start: str, items: list[CompletionItem]) -> list[CompletionItem]:
    return [CompletionItem(start + each.value, help=each.help) for each in items]


@click.command(cls=Command, columns=PAUSES.fields)
@click.pass_obj
def pauses(options: Options) -> None:
    """List what is paused, the latest first, with who paused it and why."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page)
    output.resource(PAUSES, rows)


@click.command(cls=Command, columns=PAUSES.fields)
@click.argument("targets", metavar="TARGET", nargs=-1, required=True, shell_complete=_complete)
@changes(PAUSE)
def pause(change: ChangeRequest, *, targets: tuple[str, ...]) -> None:
    """Keep jobs from starting until they are resumed; running jobs end their attempt.

    TARGET is `all`, or type:NAME, tenant:NAME, queue:NAME or job:ID; queue:default holds the jobs
    without a queue. Has no effect on what is paused already.
    """
    _act(change, store.pause, targets, remark="was paused already")


@click.command(cls=Command, columns=PAUSES.fields)
@click.argument(
    "targets", metavar="TARGET", nargs=-1, required=True, shell_complete=_complete_paused
)
@changes(RESUME)
def resume(change: ChangeRequest, *, targets: tuple[str, ...]) -> None:
    """Let jobs start again, at once. Has no effect on what is not paused."""
    _act(change, store.resume, targets, remark="was not paused")


def _act(
    change: ChangeRequest,
    act: Callable[..., Awaitable[bool]],
    targets: tuple[str, ...],
    *,
    remark: str,
) -> None:
    """Apply the change, and show what is paused now; `remark` applies if nothing changed."""
    output = change.output
    text, *others = targets
    if others:
        verb = act.__name__
        raise UsageError(
            f"{text[:80]!a} and {others[0][:80]!a}: {verb} takes one target",
            hint=f"repeat cortex {verb} for each",
        )
    with session(change.options) as call:
        target = _target(call, text)

        async def work(db: Database, *, by: str, reason: str) -> dict[str, bool]:
            return {"is_changed": await act(db, target, by=by, reason=reason)}

        operation = f"pauses.{act.__name__}"
        done = change.write(call, work, operation=operation, request={"target": str(target)})
        rows = call(store.page)
        is_empty = (
            act is store.pause
            and bool(target.name)
            and target.kind is PauseKind.QUEUE
            and not _has_tasks(call(queues.page, [target.name]))
        )
    output.resource(PAUSES, rows)
    if is_empty:
        shown = shlex.quote(target.words)
        output.say(f"no task waits in {safe(shown)}; see: cortex queues ls", "warn")
    if not done["is_changed"]:
        output.say(f"nothing was done: {safe(str(target))} {remark}", "warn")


def _has_tasks(rows: list[QueueRow]) -> bool:
    return any(row.ready or row.running for row in rows)


def _target(call: Session, text: str) -> Pausable:
    """Return what is named; a job by the end of its id, too."""
    word, _, name = text.partition(":")
    if word == PauseKind.JOB and name:
        return Pausable(PauseKind.JOB, str(call(jobs.find, name)))
    return Pausable.parse(text)
