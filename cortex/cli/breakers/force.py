"""`cortex breakers open` and `close`: a person overrides a circuit breaker."""

import difflib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Span
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import policy_of
from cortex.domain.errors import UsageError
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import breakers as store
from cortex.store import specs
from cortex.store.breakers import with_past
from cortex.store.specs import SpecKind
from cortex.view.resources.breakers import BREAKERS
from cortex.view.verbs import CLOSE_BREAKER, OPEN_BREAKER

NEAR_MAX: Final = 3
"""Similar names suggested for a typing error."""
AGENTS_MAX: Final = 1000


@click.command("open", cls=Command, columns=BREAKERS.fields)
@click.argument("name", metavar="NAME")
@click.option(
    "--for",
    "for_s",
    type=Span(),
    metavar="TIME",
    help="How long, such as 30m; then one call tests it [until it is closed].",
)
@changes(OPEN_BREAKER)
def open_(change: ChangeRequest, *, name: str, for_s: float | None) -> None:
    """Hold a breaker open, for a time or until it is closed; jobs that need it wait."""
    policy_of(name)
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} contains invisible characters: no call uses it")
    end = "until it is closed" if for_s is None else f"for {span(for_s)}"
    change.confirm(f"open {name}: jobs that need it wait {end}")
    terms = {} if for_s is None else {"for_s": for_s}
    with session(change.options) as call:
        _warn_of_typo(call, name, change.output)
        _force(change, call, store.force_open, name, **terms)


@click.command(cls=Command, columns=BREAKERS.fields)
@click.argument("name", metavar="NAME")
@changes(CLOSE_BREAKER)
def close(change: ChangeRequest, *, name: str) -> None:
    """Close a breaker now and forget its failures; waiting jobs call again at once."""
    policy_of(name)
    change.confirm(f"close {name}: jobs call it again at once")
    with session(change.options) as call:
        _force(change, call, store.close, name)


def _force(
    change: ChangeRequest,
    call: Session,
    act: Callable[..., Awaitable[object]],
    name: str,
    **terms: float,
) -> None:
    """Apply the change, and show the breaker's new state."""
    request = {"name": name, **terms}
    operation = f"breakers.{act.__name__}"
    change.write(call, partial(act, **request), operation=operation, request=request)
    rows = call(with_past, call(store.page, name=name))
    change.output.resource(BREAKERS, rows)


def _warn_of_typo(call: Session, name: str, output: Output) -> None:
    """Warn if no known call or agent uses this breaker: the name may be mistyped."""
    known = {row.name for row in call(store.page)}
    for agent in call(specs.page, SpecKind.AGENT, limit=AGENTS_MAX):
        models = (agent.spec["model"], *agent.spec.get("fallback", ()))
        known.update(f"llm:{model}" for model in models)
        known.update(f"tool:{tool}" for tool in agent.spec.get("tools", ()))
    if name in known or call(store.page, name=name, limit=1):
        return
    near = difflib.get_close_matches(name, sorted(known), n=NEAR_MAX)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    output.say(f"no known call or agent uses {name}{meant}", "warn")
