"""The keys of the screen of messages; see `keys`."""

from typing import Final

from cortex_tui.key import Key

MESSAGES: Final = (
    Key(
        id="messages.retry",
        keys=("R",),
        action="retry",
        label="retry",
        help="Send the failed message again, under the same id",
        group="act",
        where=("messages",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="messages.discard",
        keys=("X",),
        action="discard",
        label="discard",
        help="Delete the message: it is never sent",
        group="act",
        where=("messages",),
        is_acting=True,
        in_footer=True,
    ),
)
