"""`cortex breakers open` and `close`: a person decides whether something may be called."""

from functools import partial
from typing import Any, Final

import click

from cortex.cli.asking import acting_name, as_option, confirm
from cortex.cli.breakers_ls import COLUMNS
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options, Text
from cortex.cli.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import policy_of
from cortex.domain.safe import safe
from cortex.store import breakers as store

REASON_MAX: Final = 500

_reason_option = click.option(
    "--reason",
    type=Text(REASON_MAX),
    required=True,
    metavar="TEXT",
    help="Shown to everybody who waits, and kept.",
)
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command("open", cls=Command)
@click.argument("name", metavar="NAME")
@_reason_option
@_yes_option
@as_option
@idempotent
@click.pass_obj
def open_(
    options: Options,
    *,
    name: str,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Hold a breaker open until somebody closes it: jobs that need it wait."""
    policy_of(name)
    question = f"open {name}: jobs that need it wait until somebody closes it"
    confirm(safe(question), options, is_agreed=yes)
    act = partial(store.force_open, name=name, by=acting_name(actor), reason=reason)
    _force(options, act, key=idempotency_key)


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@_reason_option
@_yes_option
@as_option
@idempotent
@click.pass_obj
def close(
    options: Options,
    *,
    name: str,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Close a breaker now and forget its failures: jobs call again at once."""
    policy_of(name)
    confirm(safe(f"close {name}: jobs call it again at once"), options, is_agreed=yes)
    act = partial(store.close, name=name, by=acting_name(actor), reason=reason)
    _force(options, act, key=idempotency_key)


def _force(options: Options, act: "partial[Any]", *, key: str | None) -> None:
    """Act once, and show how the breaker stands now."""
    output = Output(options)
    operation = f"breakers.{act.func.__name__}"
    with session(options) as call:
        mutate(call, act, output=output, key=key, operation=operation, request=act.keywords)
        rows = call(store.page, name=act.keywords["name"])
    output.listing("breakers", COLUMNS, rows, empty="")
