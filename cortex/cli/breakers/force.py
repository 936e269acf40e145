"""`cortex breakers open` and `close`: a person overrides a circuit breaker."""

import difflib
from functools import partial
from typing import Any, Final

import click

from cortex.cli.asking import acting_name, as_option, confirm, reason_option
from cortex.cli.breakers.ls import COLUMNS
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options, Span
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import policy_of
from cortex.domain.errors import UsageError
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import agents
from cortex.store import breakers as store
from cortex.store.breakers import with_past

NEAR_MAX: Final = 3
"""Similar names suggested for a typing error."""
AGENTS_MAX: Final = 1000

_reason_option = reason_option("Shown to everyone who waits, and stored.", is_required=True)
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command("open", cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--for",
    "for_s",
    type=Span(),
    metavar="TIME",
    help="How long, such as 30m; then one call tests it [until it is closed].",
)
@_reason_option
@_yes_option
@as_option
@idempotent
@click.pass_obj
def open_(
    options: Options,
    *,
    name: str,
    for_s: float | None,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Hold a breaker open, for a time or until it is closed; jobs that need it wait."""
    policy_of(name)
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} contains invisible characters: no call uses it")
    end = "until it is closed" if for_s is None else f"for {span(for_s)}"
    confirm(safe(f"open {name}: jobs that need it wait {end}"), options, is_agreed=yes)
    act = partial(store.force_open, name=name, by=acting_name(actor), reason=reason)
    if for_s is not None:
        act = partial(act, for_s=for_s)
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
    """Close a breaker now and forget its failures; waiting jobs call again at once."""
    policy_of(name)
    confirm(safe(f"close {name}: jobs call it again at once"), options, is_agreed=yes)
    act = partial(store.close, name=name, by=acting_name(actor), reason=reason)
    _force(options, act, key=idempotency_key)


def _force(options: Options, act: "partial[Any]", *, key: str | None) -> None:
    """Apply the change, and show the breaker's new state."""
    output = Output(options)
    operation = f"breakers.{act.func.__name__}"
    with session(options) as call:
        if act.func is store.force_open:
            _warn_of_typo(call, act.keywords["name"], output)
        mutate(call, act, output=output, key=key, operation=operation, request=act.keywords)
        rows = call(with_past, call(store.page, name=act.keywords["name"]))
    output.listing("breakers", COLUMNS, rows, empty="")


def _warn_of_typo(call: Session, name: str, output: Output) -> None:
    """Warn if no known call or agent uses this breaker: the name may be mistyped."""
    known = {row.name for row in call(store.page)}
    for agent in call(agents.page, limit=AGENTS_MAX):
        known.add(f"llm:{agent.spec['model']}")
        known.update(f"tool:{tool}" for tool in agent.spec.get("tools", ()))
    if name in known or call(store.page, name=name, limit=1):
        return
    near = difflib.get_close_matches(name, sorted(known), n=NEAR_MAX)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    output.say(f"no known call or agent uses {name}{meant}", "warn")
