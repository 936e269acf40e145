"""An application whose effects are called before their intent is recorded: judges must notice.

A pod that is killed between such a call and its result calls once more.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from cortex.domain.job import IntentReply, Lease
from cortex.durable import effects
from cortex.durable.effects import EffectCall, Ledger

_NOTHING: Final = dict.fromkeys(("result", "why", "quota", "used", "limit", "amount", "wait_s"))


async def _go(
    call: EffectCall,  # noqa: ARG001 -- as it is called
    lease: Lease,
    ledger: Ledger,  # noqa: ARG001
    new_id: Callable[[], UUID],
    *,
    is_sure: bool,  # noqa: ARG001
) -> IntentReply:
    return IntentReply(id=new_id(), verdict="go", attempt=lease.attempt, **_NOTHING)


effects._leave = _go  # noqa: SLF001 -- what it breaks
