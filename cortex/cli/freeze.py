"""`cortex freeze`: holds back every new effect of all pods, and lets them begin again."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final

import click

from cortex.cli.asking import acting_name, as_option, confirm, reason_option, unasked_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output, document_of
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.phrases import rfc3339, since_s, span
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import breakers as store
from cortex.store.breakers import FreezeState

freeze = Group(
    "freeze",
    help="Stop all new effects: calls of tools that change something outside.\n\n"
    "Within a second no pod begins one. Reads and model calls go on; jobs that come to an effect "
    "wait, none fails, and all go on by themselves when it is over.",
    sections={
        "Look": {"status": ("cortex.cli.freeze:status", "Tell whether effects are frozen.")},
        "Act": {
            "on": ("cortex.cli.freeze:on", "Let no effect begin."),
            "off": ("cortex.cli.freeze:off", "Let effects begin again."),
        },
    },
)

_FIELDS: Final = ("is_frozen", "by", "reason", "frozen_at", "waiting_jobs")


@click.command(cls=Command)
@click.pass_obj
def status(options: Options) -> None:
    """Tell whether effects are frozen, by whom, why, and how many jobs wait."""
    output = _output(options)
    with session(options) as call:
        _show(call, output)


@click.command(cls=Command)
@reason_option("Shown to everybody who waits, and kept.", is_required=True)
@unasked_option
@as_option
@idempotent
@click.pass_obj
def on(options: Options, *, reason: str, actor: str | None, idempotency_key: str | None) -> None:
    """Let no effect begin, in all pods, until `cortex freeze off`.

    Calls that have begun come to their end. When effects are frozen already, this reason and this
    name take the place of those before.
    """
    _do(options, store.freeze, reason=reason, actor=actor, key=idempotency_key)


@click.command(cls=Command)
@reason_option("Kept with the change.", is_required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
@idempotent
@click.pass_obj
def off(
    options: Options, *, reason: str, yes: bool, actor: str | None, idempotency_key: str | None
) -> None:
    """Let effects begin again: all jobs that wait for it go on.

    Ends with 5 when effects are not frozen.
    """
    confirm("let effects begin again in all pods", options, is_agreed=yes)
    _do(options, store.unfreeze, reason=reason, actor=actor, key=idempotency_key)


def _do(
    options: Options,
    act: Callable[..., Awaitable[object]],
    *,
    reason: str,
    actor: str | None,
    key: str | None,
) -> None:
    output = _output(options)
    by = acting_name(actor)

    async def work(db: Database) -> None:
        await act(db, by=by, reason=reason)

    with session(options) as call:
        mutate(
            call,
            work,
            output=output,
            key=key,
            operation=f"effects.{act.__name__}",
            request={"by": by, "reason": reason},
        )
        _show(call, output)


def _output(options: Options) -> Output:
    if options.columns is not None:
        raise UsageError("the freeze has no columns", hint="all of it: --json")
    return Output(options)


def _show(call: Session, output: Output) -> None:
    seen = call(store.frozen)
    output.record(
        document_of(seen, _FIELDS),
        name="frozen" if seen.is_frozen else "open",
        page=lambda: _page(seen, output.terminal),
    )


def _page(seen: FreezeState, terminal: Terminal) -> Iterator[str]:
    count = seen.waiting_jobs
    more = "+" if count >= store.COUNT_MAX else ""
    jobs = "1 job waits" if count == 1 else f"{count:,}{more} jobs wait"
    if not seen.is_frozen:
        yield f"{terminal.paint('● effects may begin', 'done')}" + (
            f" · {jobs} to be let go" if count else ""
        )
        return
    since = "" if seen.frozen_at is None else f" {_since(seen, seen.frozen_at, terminal)}"
    told = f"frozen by {seen.by}{since}: {seen.reason}"
    yield f"{terminal.paint('✗ effects are frozen', 'fail')} · {jobs}"
    yield f"  {safe(told)}"


def _since(seen: FreezeState, frozen_at: datetime, terminal: Terminal) -> str:
    if not terminal.is_tty:
        return rfc3339(frozen_at)
    return f"for {span(since_s(seen, frozen_at))}"
