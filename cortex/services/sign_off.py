"""The last word of a pod that leaves: what it still owns goes on at once elsewhere.

On failure: told; while the database does not answer, a pod that may owe it something asks again,
each time after a pause by chance, until it is cancelled: by the deadline of its phase.
"""

import random
from collections.abc import Awaitable, Callable

import structlog
import trio

from cortex.domain.errors import CortexError, UnavailableError
from cortex.services.outage import Outage

_log = structlog.get_logger(__name__)


async def sign_off(
    say: Callable[[], Awaitable[None]], *, may_owe: bool, rng: random.Random
) -> None:
    """Say goodbye; `may_owe`: attempts have ended here of which the database was never told."""
    outage = Outage(rng=rng)
    while True:
        try:
            await say()
            return
        except CortexError as error:
            pause_s = outage.failed(_log, "did not sign off", error)
            if not (may_owe and isinstance(error, UnavailableError)):
                return
        await trio.sleep(pause_s)
