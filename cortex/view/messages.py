"""Messages of the outbox in words."""

import math
from typing import Final

from cortex.domain.messages.message import MessageStatus
from cortex.store.background.outbox import MessageHead
from cortex.view.cells import Cell
from cortex.view.phrases import age, since_s

NOBODY: Final = "nobody had subscribed"
_STYLES: Final = {
    MessageStatus.PENDING: "",
    MessageStatus.PROCESSING: "run",
    MessageStatus.SENT: "done",
    MessageStatus.FAILED: "fail",
}


def message_state(row: MessageHead) -> Cell:
    """Return a message's state, and when it is tried again."""
    word = row.status.value.lower()
    if row.status is MessageStatus.PENDING:
        left_s = -since_s(row, row.available_at)
        if row.is_parked:
            word = "waits its turn"
        elif row.channel is None:
            word = "unsubscribed"
        elif left_s > 0:
            word = f"{'again ' if row.attempts else ''}in {age(math.ceil(left_s))}"
    return Cell(word, _STYLES[row.status])


def attempts_text(row: MessageHead) -> str:
    text = "1 attempt" if row.attempts == 1 else f"{row.attempts} attempts"
    if not row.lost_count:
        return text
    return f"{text}, {row.lost_count} lost with their pods"
