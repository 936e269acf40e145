"""Messages to people and other systems: one row for each subscription that gets one."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.messages.subscription import Channel
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.background.outbox import MessageRow
from cortex.view.cells import Cell
from cortex.view.messages import message_state
from cortex.view.resource import Field, Resource, aged, on_demand

FIELDS: Final[Sequence[Field[MessageRow]]] = (
    Field(
        name="id",
        doc="the message: shared by its rows",
        title="message",
        shown=lambda r: Cell(short_id(r.id), "bold"),
    ),
    Field(name="status", shown=message_state),
    Field(name="topic"),
    Field(
        name="subscription",
        doc="null: nobody had subscribed",
        shown=lambda r: Cell(safe(r.subscription)) if r.subscription else Cell("nobody", "dim"),
    ),
    Field(
        name="attempts",
        doc="how often it was tried, without those that its pod did not survive",
        title="tries",
        is_right=True,
    ),
    aged("created_at", title="published", style="dim", is_spare=True),
    Field(name="last_error", title="error", least=12, is_spare=True),
    *on_demand("payload", "headers", "tenant", "trace", "locked_until", "finished_at"),
    Field(
        name="channel",
        doc="null: the subscription was removed",
        kind=Channel | None,
        is_default=False,
    ),
    *on_demand(
        seq="order of the rows",
        key="messages of one key are sent in order",
        escalated_from="the subscription by which it could not be sent",
        available_at="when it may be sent: the next attempt",
        lost_count="pods that died, or lost their lease, while they had it",
        is_parked="waits behind an earlier message of its key",
        pod="the pod that sends it now",
    ),
)

MESSAGES: Final = Resource(
    name="Message",
    noun="messages",
    doc="A message for one subscription.",
    row=MessageRow,
    fields=FIELDS,
    empty="no message",
    unlisted=frozenset({"now"}),
)
