"""An application that breaks its pod in two ways, both of which the judge must notice.

Effects are called before their intent is recorded: a pod that is killed between such a call and its
result calls once more. Answers of the model that are on record are paid once more at each replay.
"""

# ruff: noqa: SLF001 -- what it breaks

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from cortex.domain.job import IntentReply, Lease
from cortex.domain.model import ModelRequest
from cortex.durable import effects
from cortex.durable.context import Context
from cortex.durable.effects import EffectCall, Ledger

_NOTHING: Final = dict.fromkeys(("result", "why", "quota", "used", "limit", "amount", "wait_s"))
_asked: Final = Context._asked


async def _go(
    call: EffectCall,  # noqa: ARG001 -- as it is called
    lease: Lease,
    ledger: Ledger,  # noqa: ARG001
    new_id: Callable[[], UUID],
    *,
    is_sure: bool,  # noqa: ARG001
) -> IntentReply:
    return IntentReply(id=new_id(), verdict="go", attempt=lease.attempt, **_NOTHING)


async def _pay_again(self: Context, key: str, request: ModelRequest, *rest: Any, **how: Any) -> Any:
    if self._journal.recorded(key):
        await self.services.models.respond(request, await self.caller(key))
    return await _asked(self, key, request, *rest, **how)


effects._leave = _go
Context._asked = _pay_again  # type: ignore[method-assign]
