"""Subscriptions: who gets which messages, and what waits."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.breaker import BreakerState
from cortex.domain.safe import safe
from cortex.store.background import subscriptions
from cortex.store.background.subscriptions import COUNT_MAX, SubscriptionRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age, since_s
from cortex.view.resource import Field, WholeResource, on_demand


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


FIELDS: Final[Sequence[Field[SubscriptionRow]]] = (
    Field(name="name", title="subscription", style="bold"),
    Field(name="topic", doc="a pattern: * stands for any characters"),
    Field(name="channel"),
    Field(
        name="pending", doc=f"messages that wait, up to {COUNT_MAX:,}", title="wait", is_right=True
    ),
    Field(name="breaker", doc="null: its channel has not failed lately", shown=_breaker),
    Field(
        name="failing_since",
        doc="it has taken no message since; null: it does",
        title="failing",
        shown=_failing,
        least=12,
        is_spare=True,
    ),
    Field(
        name="filter",
        doc="it gets only messages whose payload contains this",
        shown=_filter,
        is_spare=True,
    ),
    Field(
        name="fallback",
        doc="the subscription that gets what this one cannot send",
        shown=lambda r: Cell(safe(r.fallback or NOTHING)),
        is_spare=True,
    ),
    Field(name="changed_at", title="set", shown=_changed, least=12, is_spare=True),
    *on_demand("last_error", "changed_by", "created_at"),
    *on_demand(
        tenant="it gets only messages of this tenant; null: of all",
        min_risk="it gets only messages of at least this risk; null: all",
        config="settings of the channel; places of secrets, never secrets",
        is_heavy="a pod runs few calls of such handlers at a time",
        attempts="of one message; null: the default of the channel",
        timeout_s="of one attempt; null: the default of the channel",
        failures="attempts that have failed since",
        next_attempt_at="while it fails: its next attempt",
    ),
)

SUBSCRIPTIONS: Final = WholeResource(
    name="Subscription",
    noun="subscriptions",
    doc="A subscription: who gets which messages.",
    row=SubscriptionRow,
    fields=FIELDS,
    empty="nobody subscribes to messages: cortex subscriptions apply FILE",
    page=subscriptions.page,
    unlisted=frozenset({"now"}),
)
