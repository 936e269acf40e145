"""Authentication by bearer tokens and sessions, looked up by digest, with a lock on guessing.

Owns: a cache of recently valid tokens, for reading only, so that a thousand waiters cost few
look-ups; the misses of each address and of each token.
Invariants: a request that changes something always looks up its token; a revoked token begins to
read for at most `CACHED_S` more. An address that guessed too often gets no look-up, unless its
token was valid before: neighbours behind one proxy must not lock each other out. One wrong token,
however often and from wherever it comes, is one guess, and locks out itself alone.

On failure: without a database every request fails with `UnavailableError`.
"""

from collections import OrderedDict
from typing import Final

import attrs
import structlog
import trio

from cortex.domain.errors import UnavailableError
from cortex.domain.token import Role, digest_of_cookie, digest_of_token
from cortex.http.framework.limits import LockOut, household
from cortex.http.framework.principal import Principal
from cortex.http.framework.problem import RateLimitedError, UnauthenticatedError
from cortex.postgres.bridge import Port
from cortex.store import tokens
from cortex.store.tokens import Holder

CACHED_S: Final = 0.25
LOOK_WAIT_S: Final = 5.0
"""Maximum wait for another request's look-up of the same token."""
CACHE_MAX: Final = 1000
MISSES_MAX: Final = 10
LOCKED_S: Final = 60.0
COOKIE_NAME: Final = "cortex_session"

_HOW: Final = "send `Authorization: Bearer TOKEN`; create a token with: cortex tokens create"
_log = structlog.get_logger(__name__)


@attrs.define
class _Known:
    """A token that was valid at its last look-up."""

    principal: Principal
    looked_up_at: float


class Authenticator:
    """Identifies callers by token or session cookie."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._looking: dict[bytes, trio.Lock] = {}
        self._of_address: LockOut[str] = LockOut(misses_max=MISSES_MAX, for_s=LOCKED_S)
        self._of_token: LockOut[bytes] = LockOut(misses_max=MISSES_MAX, for_s=LOCKED_S)

    async def by_token(
        self, authorization: str | None, *, address: str, is_read_only: bool
    ) -> Principal:
        """Return the caller with this `Authorization` header.

        Raises `UnauthenticatedError`, `RateLimitedError` for an address that guessed too often.
        """
        if authorization is None:
            raise UnauthenticatedError("this needs a token", hint=_HOW)
        scheme, _, token = authorization.partition(" ")
        digest = digest_of_token(token.strip()) if scheme.lower() == "bearer" else None
        if digest is None or digest not in self._known:
            self.refuse_locked(address)
        if digest is not None and (locked_s := self._of_token.locked_s(digest)) > 0:
            raise RateLimitedError("this token was refused too often", wait_s=locked_s)
        if digest is None:
            raise self._missed(address, None, "the Authorization header holds no token of Cortex")
        if is_read_only and (principal := self._remembered(digest)) is not None:
            return principal
        return await self._look_up(digest, address=address, is_read_only=is_read_only)

    async def by_cookie(self, value: str | None, *, address: str) -> Principal | None:
        """Return the caller with this session cookie, or None.

        Raises `RateLimitedError` for an address that guessed too often.
        """
        if value is None:
            return None
        digest = digest_of_cookie(value)
        if digest is None or digest not in self._known:
            self.refuse_locked(address)
        holder = None if digest is None else await self._port(tokens.of_session, digest)
        if holder is None or digest is None:
            # An old cookie is not a guess; text that cannot be a cookie is.
            if digest is None:
                self._of_address.miss(household(address))
            return None
        return self._remember(digest, holder)

    def refuse_locked(self, address: str) -> None:
        """Raise `RateLimitedError` for an address that guessed too often."""
        locked_s = self._of_address.locked_s(household(address))
        if locked_s > 0:
            raise RateLimitedError("too many wrong tokens from this address", wait_s=locked_s)

    def _remembered(self, digest: bytes) -> Principal | None:
        known = self._known.get(digest)
        if known is None or trio.current_time() - known.looked_up_at > CACHED_S:
            return None
        return known.principal

    async def _look_up(self, digest: bytes, *, address: str, is_read_only: bool) -> Principal:
        if not is_read_only:
            return self._admitted(digest, await self._port(tokens.used, digest), address=address)
        # Those who come while the first one looks wait for what it finds, but not one by one
        # for a database that does not answer.
        lock = self._looking.setdefault(digest, trio.Lock())
        try:
            with trio.move_on_after(LOOK_WAIT_S) as patience:
                await lock.acquire()
            if patience.cancelled_caught:
                raise UnavailableError("the database does not answer", hint="try again in a moment")
            try:
                principal = self._remembered(digest)
                if principal is None:
                    holder = await self._port(tokens.used, digest)
                    principal = self._admitted(digest, holder, address=address)
                return principal
            finally:
                lock.release()
        finally:
            stands = lock.statistics()
            if not stands.locked and not stands.tasks_waiting:
                self._looking.pop(digest, None)

    def _admitted(self, digest: bytes, holder: Holder | None, *, address: str) -> Principal:
        if holder is not None and holder.is_good:
            return self._remember(digest, holder)
        self._known.pop(digest, None)
        if holder is None:
            raise self._missed(address, digest, "unknown token")
        # Not a guess: a program with an outdated token must not lock its neighbours out.
        self._of_token.miss(digest)
        what = "was revoked" if holder.is_revoked else "has expired"
        raise UnauthenticatedError(f"this token {what}", hint=_HOW)

    def _remember(self, digest: bytes, holder: Holder) -> Principal:
        principal = Principal(
            name=holder.name,
            roles=holder.roles,
            token_id=holder.token_id,
            tenant=holder.tenant,
            digest=digest,
        )
        self._known[digest] = _Known(principal, trio.current_time())
        self._known.move_to_end(digest)
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
        return principal

    def _missed(self, address: str, digest: bytes | None, message: str) -> UnauthenticatedError:
        is_new = digest is None or digest not in self._of_token
        if digest is not None:
            self._of_token.miss(digest)
        if is_new and self._of_address.miss(household(address)):
            _log.warning("too many wrong tokens: locked out", address=address, locked_s=LOCKED_S)
        return UnauthenticatedError(message, hint=_HOW)


def lacks(principal: Principal, needed: Role) -> str:
    """Describe the missing role."""
    held = ", ".join(sorted(role.value for role in principal.roles)) or "none"
    return f"this needs the role {needed.value}; {principal.name} has: {held}"
