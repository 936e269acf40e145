"""Changes to effects: record an outcome, freeze all, change a quota."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs
from textual.events import Key

from cortex.domain.effect import Resolution
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.phrases import short_id
from cortex.domain.quota import Quota
from cortex.domain.safe import safe
from cortex.store.effects import EffectRow
from cortex.store.quotas import QuotaRow
from cortex.view.effects import STATES, prospects
from cortex.view.verbs import REMOVE_QUOTA, SET_QUOTA
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model.resolving import SAID, LimitQuestion, ResolveQuestion
from cortex_tui.render.effect_rows import effect_words, is_unknown
from cortex_tui.render.words import failed
from cortex_tui.screens.reasoned import because, propose, put
from cortex_tui.widgets.strip_line import StripLine

READING: Final = "reading …"
Acted = Callable[[], None]
"""Called after a change, or a possible one."""


def why_nothing(row: EffectRow) -> str:
    """Return why nobody has to record the outcome of an effect; safe."""
    if row.resolution:
        return safe(f"{row.resolved_by} has said that already: {row.resolution}")
    return safe(f"{effect_words(row)} is {STATES[row.status].text}: nobody is asked")


async def resolve(
    context: AppContext, strip: StripLine, effect_id: UUID, *, typed: Sequence[Key], acted: Acted
) -> None:
    """Ask for the outcome of an effect, after reading its current state.

    `typed`: the return value of the strip's `expect`.
    """
    effects, by = context.backend.effects, context.session.identity
    try:
        row = await effects.show(effect_id)
    except CortexError as error:
        strip.show(f"✗ {failed(error)}", "fail")
        return
    if not strip.may_ask:
        strip.drop(READING)
        return  # the operator has left this screen
    if not is_unknown(row):
        strip.show(why_nothing(row), "warn")
        return
    name = safe(effect_words(row))
    question = ResolveQuestion(name, prospects(row))

    def act() -> Action:
        said, reason = question.said or Resolution.GIVE_UP, question.reason

        async def done() -> str:
            outcome = await effects.resolve(effect_id, said, by=by, reason=reason)
            return f"{short_id(effect_id)} {outcome}"

        return Action(
            question=f"{effect_words(row)} {SAID[said]}",
            command=("effects", "resolve", str(effect_id), said.value, *because(reason), "--yes"),
            work=_then(done, acted),
        )

    put(context, strip, question, act, typed=typed)


def freeze(context: AppContext, strip: StripLine, *, is_frozen: bool, acted: Acted) -> None:
    """Ask whether to freeze the effects of all pods, or to unfreeze them."""
    effects, identity = context.backend.effects, context.session.identity
    text = (
        "let effects begin again in all pods"
        if is_frozen
        else "freeze effects: no pod begins one, jobs that come to one wait"
    )

    def act(reason: str) -> Action:
        async def change() -> str:
            if is_frozen:
                return await effects.unfreeze(by=identity, reason=reason)
            return await effects.freeze(by=identity.name, reason=reason)

        command = ("freeze", "off") if is_frozen else ("freeze", "on")
        agreed = ("--yes",) if is_frozen else ()
        return Action(
            question=text,
            command=(*command, *because(reason), *agreed),
            work=_then(change, acted),
        )

    propose(context, strip, text, act, verb=SET_QUOTA)


def set_limit(context: AppContext, strip: StripLine, row: QuotaRow, *, acted: Acted) -> None:
    quota, effects, by = row.quota, context.backend.effects, context.session.actor
    text = safe(f"change quota {quota.name} from {quota.worded(quota.limit)}")
    question = LimitQuestion(text, why_not=lambda typed: _why_not(quota, typed))

    def act() -> Action:
        changed, reason = attrs.evolve(quota, limit=question.limit), question.reason
        of = () if quota.argument is None else ("--of", quota.argument)
        unit = () if quota.unit is None else ("--unit", quota.unit)
        limit = ("--limit", f"{changed.limit:f}", "--per", quota.period.value)
        return Action(
            question=f"{question.text}",
            command=("quotas", "set"),
            name=quota.tool,
            options=(*limit, *of, *unit, *because(reason)),
            work=_then(lambda: effects.set_quota(changed, by=by, reason=reason), acted),
        )

    put(context, strip, question, act)


def remove_quota(context: AppContext, strip: StripLine, row: QuotaRow, *, acted: Acted) -> None:
    name, effects, by = row.name, context.backend.effects, context.session.actor
    text = f"remove quota {name}: jobs that wait for it continue, without a limit"

    def act(reason: str) -> Action:
        return Action(
            question=text,
            command=("quotas", "rm"),
            name=name,
            options=(*because(reason), "--yes"),
            work=_then(lambda: effects.remove_quota(name, by=by, reason=reason), acted),
        )

    propose(context, strip, text, act, verb=REMOVE_QUOTA)


def _then(work: Callable[[], Awaitable[str]], acted: Acted) -> Callable[[], Awaitable[str]]:
    async def done() -> str:
        try:
            return await work()
        finally:
            acted()  # also after a refusal: reread

    return done


def _why_not(quota: Quota, typed: str) -> str:
    """Return why a limit is invalid, by the rules of the command; "" if it is valid."""
    unit = f" {quota.unit}" if quota.unit else ""
    try:
        wanted = Quota.parse(quota.tool, f"{typed}{unit}/{quota.period}", argument=quota.argument)
    except UsageError as error:
        return failed(error)
    return "that is the limit now" if wanted.limit == Decimal(quota.limit) else ""
