"""One key binding: its action, label, and the screens it works on."""

from collections.abc import Sequence
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
    "help",
    "fields",
    "approvals",
    "pods",
    "breakers",
    "schedules",
    "effects",
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
        """Whether it is active on a screen."""
        return EVERYWHERE in self.where or screen in self.where


def move(name: str, keys: Sequence[str], label: str, meaning: str, **more: object) -> Key:
    return Key(
        id=f"list.{name}",
        keys=tuple(keys),
        action=f"move('{name}')",
        label=label,
        help=meaning,
        group="move",
        where=LISTS,
        **more,  # type: ignore[arg-type]
    )


def of_job(
    name: str,
    keys: tuple[str, ...],
    action: str,
    label: str,
    meaning: str,
    *,
    group: str = "look",
    **more: object,
) -> Key:
    return Key(
        id=f"job.{name}",
        keys=keys,
        action=action,
        label=label,
        help=meaning,
        group=group,
        where=("job",),
        **more,  # type: ignore[arg-type]
    )


def look(
    name: str, keys: Sequence[str], action: str, label: str, meaning: str, **more: object
) -> Key:
    return Key(
        id=name,
        keys=tuple(keys),
        action=action,
        label=label,
        help=meaning,
        group="look",
        **more,  # type: ignore[arg-type]
    )


def act(
    id: str,  # noqa: A002 -- the field's name
    key: str,
    meaning: str,
    *where: str,
    action: str | None = None,
    label: str | None = None,
) -> Key:
    """Return a key that changes something; its action and label default to its id's last word."""
    name = id.rpartition(".")[2]
    return Key(
        id=id,
        keys=(key,),
        action=action or name,
        label=label or name,
        help=meaning,
        group="act",
        where=where,
        is_acting=True,
        in_footer=True,
    )


def show_screen(number: int, name: str, meaning: str) -> Key:
    return Key(
        id=f"screen.{name}",
        keys=(str(number),),
        action=f"app.show('{name}')",
        label=name,
        help=meaning,
        group="move",
    )
