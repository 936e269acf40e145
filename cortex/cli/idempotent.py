"""`--idempotency-key`: a command that is run again under its key tells what it did the first time.

Every command that changes something takes it: `@idempotent` adds the option, `mutate` does the
write under the key, or without one.
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
    """What may be an idempotency key."""

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
    help="Run again with the same KEY within 24 h, it is done once.",
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
    """Do a write and return its response as JSON keeps it, the same with a key and without.

    `request`: all that was asked for, nothing that was made here. Under a key `work` runs in one
    transaction and may be run again; what was done before is told again, and marked as such.
    Raises what `work` raises; with a key also `KeyReusedError`, and `ConflictError` when the same
    key has been in use elsewhere for ten seconds.
    """
    if key is None:
        return call(unguarded, work).response
    digest = request_digest(operation, request)
    answer = _asked(call, work, key=key, operation=operation, digest=digest)
    if answer.is_replayed:
        output.mark_replayed(f"nothing was done: this is what key {key} led to the first time")
    return answer.response


def _asked(
    call: Session,
    work: Callable[[Database], Awaitable[object]],
    *,
    key: str,
    operation: str,
    digest: bytes,
) -> GuardedResponse:
    """Ask until there is an answer: while the key is in use, and when a reply was lost."""
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
                    f"it is not known whether it was done: {error.message}",
                    hint="run it again with the same --idempotency-key once the database is back",
                ) from error
        tries += 1
        call.pause(BACKOFF.pause_s(tries, rng=chance.rng, least=0.5))
