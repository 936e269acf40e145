"""Actions with a reason: the strip asks for it, then for confirmation."""

from collections.abc import Awaitable, Callable, Sequence

from textual.events import Key

from cortex.domain.safe import safe
from cortex.view.verbs import Verb
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model.question import YES, Prompt
from cortex_tui.model.reason import ReasonQuestion
from cortex_tui.widgets.strip_line import StripLine

Work = Callable[..., Awaitable[str]]
"""Does something in a person's name: takes `by` and `reason`, returns the outcome."""


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


def propose_change(
    context: AppContext,
    strip: StripLine,
    verb: Verb,
    text: str,
    *,
    name: str,
    work: Work,
    label: str | None = None,
    asked: str | None = None,
    typed: Sequence[Key] = (),
) -> None:
    """Ask whether to do what a verb says; `asked`: the question, if it says more than `text`."""

    def act(reason: str) -> Action:
        return change(context, verb, text, name=name, label=label, work=work, reason=reason)

    propose(context, strip, asked or text, act, verb=verb, typed=typed)


def change(
    context: AppContext,
    verb: Verb,
    text: str,
    *,
    name: str,
    work: Work,
    reason: str,
    label: str | None = None,
    options: tuple[str, ...] = (),
) -> Action:
    """Return the action of a verb on the resource of a name, whose outcome begins with `label`."""
    by = context.session.actor

    async def done() -> str:
        return f"{label or name}: {await work(by=by, reason=reason)}"

    agreed = ("--yes",) if verb.asks else ()
    return Action(
        question=text,
        command=tuple(verb.command.split()),
        name=name,
        options=(*options, *because(reason), *agreed),
        work=done,
    )


def because(reason: str) -> tuple[str, ...]:
    """Return the command's option for a reason."""
    return ("--reason", reason) if reason else ()
