"""Changes to pods and queues, each confirmed first."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from cortex.domain.safe import safe
from cortex.store.pods import PodRow
from cortex.store.queues import QueueRow
from cortex.view.queues import queue_shown
from cortex.view.verbs import DRAIN_POD, PAUSE_QUEUE, RESUME_QUEUE, UNDRAIN_POD, Verb
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.render.pod_rows import goes_where, is_drained, pod_words
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.strip_line import StripLine


def drain(
    context: AppContext, strip: StripLine, row: PodRow | None, rows: Sequence[PodRow]
) -> None:
    """Ask whether to drain a pod, or to let it take jobs again."""
    pods = context.backend.pods
    if row is None:
        strip.show("no pod under the cursor", "dim")
    elif not row.is_living or row.phase is not None:
        text = "leaves already" if row.is_living else "has ended"
        strip.show(f"{safe(row.name)} {text}", "dim")
    elif is_drained(row):
        text = f"let {row.name} take jobs again"
        _propose(
            context, strip, text, ("pods", "undrain"), work=pods.undrain, row=row, verb=UNDRAIN_POD
        )
    else:
        text = f"drain {pod_words(row)}{goes_where(row, rows)}"
        _propose(context, strip, text, ("pods", "drain"), work=pods.drain, row=row, verb=DRAIN_POD)


def pause(context: AppContext, strip: StripLine, row: QueueRow | None) -> None:
    """Ask whether to pause a queue, or to resume it."""
    queues = context.backend.queues
    if row is None:
        strip.show("no queue under the cursor", "dim")
    elif row.paused_at is not None:
        text = f"resume queue {queue_shown(row.queue)}"
        _propose(
            context,
            strip,
            text,
            ("queues", "resume"),
            work=queues.resume,
            row=row,
            verb=RESUME_QUEUE,
        )
    else:
        text, command = f"pause queue {queue_shown(row.queue)}", ("queues", "pause")
        _propose(context, strip, text, command, work=queues.pause, row=row, verb=PAUSE_QUEUE)


def _propose(
    context: AppContext,
    strip: StripLine,
    text: str,
    command: tuple[str, ...],
    *,
    work: Callable[..., Awaitable[str]],
    row: PodRow | QueueRow,
    verb: Verb,
) -> None:
    which: UUID | str | None
    if isinstance(row, PodRow):
        name, which = row.name, row.id
    else:
        name, which = queue_shown(row.queue), row.queue
    by = context.session.actor

    def act(reason: str) -> Action:
        async def done() -> str:
            return f"{name}: {await work(which, by=by, reason=reason)}"

        return Action(
            question=text,
            command=command,
            name=name_of(row),
            options=because(reason),
            work=done,
        )

    propose(context, strip, text, act, verb=verb)


def name_of(row: PodRow | QueueRow) -> str:
    """Return the name that commands take."""
    return str(row.id) if isinstance(row, PodRow) else queue_shown(row.queue)
