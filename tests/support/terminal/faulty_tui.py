"""`python -m tests.support.terminal.faulty_tui WHERE tui …` is `cortex tui` with a fault."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from cortex.cli.main import main
from cortex_tui.actions import Actions
from cortex_tui.backend.jobs import StoreJobs
from cortex_tui.screens.jobs import JobsScreen
from cortex_tui.widgets.filter_line import FilterLine

SECRET: Final = "sk-live-4242"


def fault(*_: Any, **__: Any) -> NoReturn:
    token = SECRET
    raise LookupError("no " + token[::-1])


def replace(kind: type[Any], name: str, method: Callable[..., Any]) -> None:
    setattr(kind, name, method)


def while_drawing() -> None:
    before = FilterLine._draw

    def draw(line: Any, width: int) -> Any:
        return fault() if line.screen.strip._notice.cell.text else before(line, width)

    replace(FilterLine, "_draw", draw)


def while_leaving() -> None:
    settling, settled = Actions.settle, asyncio.Event()

    async def settle(actions: Actions, **within: Any) -> Any:
        settled.set()
        return await settling(actions, **within)

    async def cancel(*_: Any, **__: Any) -> None:
        await settled.wait()
        fault()

    replace(Actions, "settle", settle)
    replace(StoreJobs, "cancel", cancel)


def while_looking() -> None:
    sorting = JobsScreen.action_sort

    def sort(screen: JobsScreen) -> None:
        replace(JobsScreen, "look", fault)
        sorting(screen)

    replace(JobsScreen, "action_sort", sort)


def at_a_key() -> None:
    replace(JobsScreen, "action_sort", fault)


FAULTS: Final = {
    "a key": at_a_key,
    "drawing": while_drawing,
    "leaving": while_leaving,
    "looking": while_looking,
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    main()
