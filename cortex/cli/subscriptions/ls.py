"""`cortex subscriptions ls`: who gets which messages, and what waits."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import BreakerState
from cortex.domain.phrases import NOTHING, age, since_s
from cortex.domain.safe import safe
from cortex.store.background import subscriptions as store
from cortex.store.background.subscriptions import SubscriptionRow
from cortex.view.cells import Cell
from cortex.view.resource import Field, on_demand


@click.command(cls=Command)
@click.pass_obj
def ls(options: Options) -> None:
    """List subscriptions: topic, channel, breaker, and how many messages wait."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(store.page)
    empty = "nobody subscribes to messages: cortex subscriptions apply FILE"
    output.listing("subscriptions", COLUMNS, rows, empty=empty)


def _breaker(row: SubscriptionRow) -> Cell:
    if row.breaker is None:
        return Cell(NOTHING, "dim")
    return Cell(row.breaker.value.lower(), "dim" if row.breaker is BreakerState.CLOSED else "fail")


def _filter(row: SubscriptionRow) -> Cell:
    words = [f"{name}={value}" for name, value in row.filter.items()]
    if row.tenant is not None:
        words.insert(0, f"tenant={row.tenant}")
    if row.min_risk is not None:
        words.append(f"risk≥{row.min_risk.value}")
    text = ", ".join(words)
    return Cell(safe(text)) if text else Cell(NOTHING, "dim")


def _failing(row: SubscriptionRow) -> Cell:
    if row.failing_since is None:
        return Cell(NOTHING, "dim")
    again = ""
    if row.next_attempt_at is not None and (left_s := -since_s(row, row.next_attempt_at)) > 0:
        again = f", again in {age(left_s)}"
    since = age(since_s(row, row.failing_since))
    return Cell(safe(f"{since}{again}: {row.last_error}"), "fail")


def _changed(row: SubscriptionRow) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.changed_at))} by {row.changed_by}"), "dim")


COLUMNS: Final[Sequence[Field[SubscriptionRow]]] = (
    Field(name="name", title="subscription", shown=lambda r: Cell(safe(r.name), "bold")),
    Field(name="topic", shown=lambda r: Cell(safe(r.topic))),
    Field(name="channel", shown=lambda r: Cell(r.channel.value)),
    Field(name="pending", title="wait", shown=lambda r: Cell(str(r.pending)), is_right=True),
    Field(name="breaker", shown=_breaker),
    Field(name="failing_since", title="failing", shown=_failing, least=12, is_spare=True),
    Field(name="filter", shown=_filter, is_spare=True),
    Field(name="fallback", shown=lambda r: Cell(safe(r.fallback or NOTHING)), is_spare=True),
    Field(name="changed_at", title="set", shown=_changed, least=12, is_spare=True),
    *on_demand(
        *("tenant", "min_risk", "config", "is_heavy", "attempts", "timeout_s", "failures"),
        *("last_error", "next_attempt_at", "changed_by", "created_at"),
    ),
)
