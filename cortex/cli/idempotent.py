"""`--idempotency-key`: a repeated command returns the result of its first run.

Every command that changes something accepts it: `@idempotent` adds the option, `mutate` writes
under the key, or without one.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import click

from cortex.cli.screen.output import Output
from cortex.domain.backoff import Backoff
from cortex.domain.clock import system_chance
from cortex.domain.errors import OutcomeUnknownError, UsageError
from cortex.domain.idempotency import KeyPendingError, checked_key, request_digest
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store.idempotency import GuardedResponse, guarded, unguarded

PENDING_MAX_S: Final = 10.0
"""No transaction lasts longer: its connection is cut."""
BACKOFF: Final = Backoff(base_s=0.05, cap_s=1.0)
TRIES_MAX: Final = 3


class Key(click.ParamType[str]):
    """A valid idempotency key."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_key(str(value))
        except UsageError as error:
            self.fail(error.message, param, ctx)


idempotent = click.option(
    "--idempotency-key",
    type=Key(),
    metavar="KEY",
    help="Repeating with the same KEY within 24 h changes nothing again.",
)


def mutate(
    call: Session,
    work: Callable[[Database], Awaitable[object]],
    *,
    output: Output,
    key: str | None,
    operation: str,
    request: Mapping[str, Any],
) -> Any:
    """Write and return the response as JSON stores it, the same with and without a key.

    `request` is everything the caller asked for, and nothing generated here. Under a key, `work`
    runs in one transaction and may run again; a repeated request returns the first response, marked
    as a replay. Raises the errors of `work`; with a key also `KeyReusedError`, and `ConflictError`
    when the key has been in use elsewhere for ten seconds.
    """
    if key is None:
        return call(unguarded, work).response
    digest = request_digest(operation, request)
    answer = _asked(call, work, key=key, operation=operation, digest=digest)
    if answer.is_replayed:
        output.mark_replayed(f"nothing was done: this is the first result of key {key}")
    return answer.response


def _asked(
    call: Session,
    work: Callable[[Database], Awaitable[object]],
    *,
    key: str,
    operation: str,
    digest: bytes,
) -> GuardedResponse:
    """Retry until there is a response, while the key is in use or if a reply was lost."""
    chance = system_chance()
    give_up_at = time.monotonic() + PENDING_MAX_S
    tries = 0
    lost_count = 0
    while True:
        try:
            return call(guarded, key, operation=operation, digest=digest, work=work)
        except KeyPendingError:
            if time.monotonic() >= give_up_at:
                raise
        except OutcomeUnknownError as error:
            lost_count += 1
            if lost_count == TRIES_MAX:
                raise OutcomeUnknownError(
                    f"the outcome is unknown: {error.message}",
                    hint="run it again with the same --idempotency-key once the database is back",
                ) from error
        tries += 1
        call.pause(BACKOFF.pause_s(tries, rng=chance.rng, least=0.5))
