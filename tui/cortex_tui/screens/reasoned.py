"""Actions with a reason: the strip asks for it, then for confirmation."""

from collections.abc import Callable, Sequence

from textual.events import Key

from cortex.domain.safe import safe
from cortex.view.verbs import Verb
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model.question import YES, Prompt
from cortex_tui.model.reason import ReasonQuestion
from cortex_tui.widgets.strip_line import StripLine


def propose(
    context: AppContext,
    strip: StripLine,
    text: str,
    act: Callable[[str], Action],
    *,
    verb: Verb,
    wanted: str = YES,
    typed: Sequence[Key] = (),
) -> None:
    """Ask for confirmation and a reason, or say why the action is not possible.

    `act` makes the action from the reason. `wanted`: what to type to confirm. `typed`: the return
    value of the strip's `expect`.
    """
    question = ReasonQuestion(safe(text), is_required=verb.is_reason_required, wanted=wanted)
    put(context, strip, question, lambda: act(question.reason), typed=typed)


def put(
    context: AppContext,
    strip: StripLine,
    question: Prompt,
    act: Callable[[], Action],
    *,
    typed: Sequence[Key] = (),
) -> None:
    """Ask, or say why the action is not possible. `act` makes it from the answers."""
    if (refusal := context.actions.why_not()) is not None:
        strip.show(refusal, "warn")
        return

    def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
        if is_agreed:
            context.actions.agreed(strip, act())
        else:
            strip.show("nothing was done", "dim")

    strip.ask(question, answered, typed=typed)


def because(reason: str) -> tuple[str, ...]:
    """Return the command's option for a reason."""
    return ("--reason", reason) if reason else ()
