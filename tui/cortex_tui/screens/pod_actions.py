"""Changes to pods and queues, each confirmed first."""

from collections.abc import Sequence
from functools import partial

from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.safe import safe
from cortex.store.pods import PodRow
from cortex.store.queues import QueueRow
from cortex.view.queues import queue_shown
from cortex.view.verbs import DRAIN_POD, PAUSE, RESUME, UNDRAIN_POD
from cortex_tui.app_context import AppContext
from cortex_tui.render.pod_rows import goes_where, is_drained, pod_words
from cortex_tui.screens.reasoned import propose_change
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
    else:
        verb, work = (UNDRAIN_POD, pods.undrain) if is_drained(row) else (DRAIN_POD, pods.drain)
        text = (
            f"let {row.name} take jobs again"
            if is_drained(row)
            else f"drain {pod_words(row)}{goes_where(row, rows)}"
        )
        propose_change(
            context,
            strip,
            verb,
            text,
            name=name_of(row),
            label=row.name,
            work=partial(work, row.id),
        )


def pause(context: AppContext, strip: StripLine, row: QueueRow | None) -> None:
    """Ask whether to pause a queue, or to resume it."""
    queues = context.backend.queues
    if row is None:
        strip.show("no queue under the cursor", "dim")
        return
    target = Pausable(PauseKind.QUEUE, row.queue or "")
    if row.paused_at is not None:
        verb, work, text = RESUME, queues.resume, f"resume {target.words}"
    else:
        verb, work, text = PAUSE, queues.pause, f"pause {target.words}"
    propose_change(context, strip, verb, text, name=str(target), work=partial(work, target))


def name_of(row: PodRow | QueueRow) -> str:
    """Return the name that commands take."""
    return str(row.id) if isinstance(row, PodRow) else queue_shown(row.queue)
