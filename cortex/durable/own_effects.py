"""Effects in a job's own code: a plain async function becomes a call that happens once."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from cortex.domain.effect import Invocation
from cortex.domain.errors import TimedOutError
from cortex.durable.codec import decode, encode
from cortex.durable.effects import EffectCall, NotDone
from cortex.durable.gates import frozen_arguments
from cortex.durable.journal import Outcome
from cortex.durable.reconciling import Reconcile, asked, takes_invocation
from cortex.durable.threads import called

if TYPE_CHECKING:
    from cortex.durable.context import Context

NAME_CHARS_MAX: Final = 200


@attrs.frozen(kw_only=True)
class OwnEffect:
    """A function with an outside result, and what it is called with."""

    key: str
    """Of its step."""
    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    reconcile: Reconcile | None
    is_idempotent: bool
    timeout_s: float | None
    """None: what the job's steps have."""


async def make(ctx: "Context", own: OwnEffect) -> Outcome:
    """Make the call once; raises its error when it was certainly not applied."""
    what = f"input of effect {own.key!r}"
    plain = decode(encode({"args": list(own.args), "kwargs": own.kwargs}, what=what))
    text, digest = frozen_arguments(plain, what=what)
    limit_s = own.timeout_s or (await ctx.limits()).step_s
    call = EffectCall(
        key=own.key,
        tool=own.name[-NAME_CHARS_MAX:],
        arguments=text,
        digest=digest,
        invoke=partial(_invoke, own, limit_s),
        reconcile=None if own.reconcile is None else partial(asked, own.reconcile),
        is_idempotent=own.is_idempotent,
        limit_s=limit_s,
    )
    ended = await ctx.outside.perform(call)
    if isinstance(ended, NotDone):
        await ctx.outside.tell(ended)
        raise ended.error
    return await ctx.outside.outcome(own.key, ended)


async def _invoke(own: OwnEffect, limit_s: float, invocation: Invocation) -> Any:
    leading = (invocation,) if takes_invocation(own.function) else ()
    with trio.move_on_after(limit_s):
        return await called(own.function, *leading, *own.args, **own.kwargs)
    told = f"effect {own.key!r} took longer than {limit_s:g} seconds"
    raise TimedOutError(told, scope="step", limit_s=limit_s)
