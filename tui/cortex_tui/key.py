"""One key binding: its action, label, and the screens it works on."""

from functools import partial
from typing import Final

import attrs

EVERYWHERE: Final = "*"
GROUPS: Final = {
    "move": "Move",
    "look": "Look (changes nothing)",
    "act": "Act (asks, then y)",
    "app": "Everywhere",
}
"""In the order of the footer and the help."""
LISTS: Final = (
    "pulse",
    "dead",
    "letters",
    "messages",
    "jobs",
    "job",
    "log",
    "logs",
    "help",
    "fields",
    "approvals",
    "pods",
    "breakers",
    "schedules",
    "effects",
    "tree",
    "pauses",
    "limits",
)
"""Screens whose body is one table, which takes the movement keys."""


@attrs.frozen(kw_only=True)
class Key:
    """The label of an action, and the keys that run it."""

    id: str
    keys: tuple[str, ...]
    """In Textual's names; the first one is shown."""
    action: str
    label: str
    """Two words at most: for the footer and the palette."""
    help: str
    group: str
    where: tuple[str, ...] = (EVERYWHERE,)
    """Names of screens."""
    is_acting: bool = False
    in_footer: bool = False
    pair: str | None = None
    """Id of the opposite key, which stands beside it in the footer."""

    def is_on(self, screen: str) -> bool:
        return EVERYWHERE in self.where or screen in self.where


def key(
    group: str,
    key_id: str,
    keys: str,
    help: str,  # noqa: A002 -- the field's name
    *where: str,
    action: str | None = None,
    label: str | None = None,
    is_acting: bool = False,
    in_footer: bool = False,
    pair: str | None = None,
) -> Key:
    """Return a key from its row; its action and label default to its id's last word.

    `keys` are separated by spaces; without screens in `where` it works everywhere.
    """
    name = key_id.rpartition(".")[2]
    return Key(
        id=key_id,
        keys=tuple(keys.split()),
        action=action or name,
        label=label or name,
        help=help,
        group=group,
        where=where or (EVERYWHERE,),
        is_acting=is_acting,
        in_footer=in_footer,
        pair=pair,
    )


move: Final = partial(key, "move")
look: Final = partial(key, "look")
act: Final = partial(key, "act", is_acting=True, in_footer=True)
app: Final = partial(key, "app")


def show_screen(number: int, name: str, meaning: str) -> Key:
    return move(f"screen.{name}", str(number), meaning, action=f"app.show('{name}')")
