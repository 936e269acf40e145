"""Signals, as every surface shows them."""

from typing import Any, Final

from cortex.store.signals import SignalRow
from cortex.view.resource import Field, Shape, on_demand

SIGNAL: Final = Shape(
    name="Signal",
    doc="A signal: it waits for its job, or a step of a job has received it.",
    row=SignalRow,
    fields=(
        *on_demand("id", "name", seq="order of arrival"),
        *on_demand(key="that it was sent to; null: to the job"),
        *on_demand("sent_at", sent_by="who sent it, as the sender says"),
        *on_demand(size_bytes="of its content as JSON"),
        Field[SignalRow](
            name="payload",
            doc="null if it is larger than 4,096 bytes",
            kind=Any,
            is_default=False,
        ),
        *on_demand(
            taken_at="when a step received it; null: it waits",
            taken_step="the step that has received it",
            taken_by="the job of that step",
        ),
    ),
)
