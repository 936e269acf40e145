"""The keys of the screens of dead letters; see `keys`."""

from typing import Final

from cortex_tui.key import Key

DEAD_LETTERS: Final = (
    Key(
        id="dead.retry",
        keys=("R",),
        action="retry",
        label="retry",
        help="Retry in new jobs, after the last recorded step",
        group="act",
        where=("dead", "letters"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="dead.edit",
        keys=("E",),
        action="edit",
        label="edit",
        help="Edit the payload as JSON, then retry with it",
        group="act",
        where=("letters",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="dead.discard",
        keys=("X",),
        action="discard",
        label="discard",
        help="Discard the failed jobs: they are not retried",
        group="act",
        where=("dead", "letters"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="dead.bulk",
        keys=("tab",),
        action="bulk",
        label="bulk jobs",
        help="The jobs that change many letters at once",
        group="move",
        where=("dead",),
        in_footer=True,
    ),
)
