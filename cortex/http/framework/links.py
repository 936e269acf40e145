"""Checks the links of approvals, with a lock on guessing.

Owns: the misses of each address and of each request, and a rate for each valid link.
Invariants: the token itself is in no log and in no error; wrong, foreign and expired tokens get the
same response. A reader locked out by others can still sign in.
"""

import re
from typing import Final
from uuid import UUID

import structlog

from cortex.http.framework.limits import Buckets, LockOut, Rate, household
from cortex.http.framework.problem import RateLimitedError
from cortex.postgres.bridge import Port
from cortex.store import approvals

MISSES_MAX: Final = 10
"""Per address."""
MISSES_OF_REQUEST_MAX: Final = 30
"""From all addresses."""
LOCKED_S: Final = 60.0
RATE: Final = Rate(burst=60, per_s=2)
"""Views per link: by people, their mail scanners and link previews."""
_TOKEN: Final = re.compile(r"[\w-]{40,200}", re.ASCII)
_log = structlog.get_logger(__name__)


class Links:
    """Checks the tokens of links."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._of_address: LockOut[str] = LockOut(misses_max=MISSES_MAX, for_s=LOCKED_S)
        self._of_request: LockOut[UUID] = LockOut(misses_max=MISSES_OF_REQUEST_MAX, for_s=LOCKED_S)
        self._looks: Buckets[UUID] = Buckets(RATE)

    async def fits(self, approval_id: UUID, token: str, *, address: str) -> bool:
        """Whether this token opens this request; the check does not use it up.

        Raises `RateLimitedError` after too many guesses or views.
        """
        who = household(address)
        locked_s = max(self._of_address.locked_s(who), self._of_request.locked_s(approval_id))
        if locked_s > 0:
            raise RateLimitedError("too many wrong links", wait_s=locked_s)
        is_good = _TOKEN.fullmatch(token) is not None
        if is_good and await self._port(approvals.is_token, approval_id, token):
            wait_s = self._looks.take(approval_id)
            if wait_s > 0:
                raise RateLimitedError("too many views of this link", wait_s=wait_s)
            return True
        is_locked = self._of_address.miss(who)
        if self._of_request.miss(approval_id) or is_locked:
            _log.warning("wrong links locked out", address=address, locked_s=LOCKED_S)
        return False
