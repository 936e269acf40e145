"""The terminal UI on a fake cluster and a clock that only the test moves; or as a process."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen

from tests.support.command_line import Cortex
from tests.support.terminal.tui import FakeBackend, ManualClock, Seat, sitting
from tests.support.terminal.tui_approvals import FakeApprovals

OpenSession = Callable[..., AbstractAsyncContextManager[Seat]]
PARSED: dict[object, list[RuleSet]] = {}
"""By variables, text and place: rules of a stylesheet that an app before has parsed."""
REFRESH = Screen._compositor_refresh
ALONE = (119, 40)
"""The widest terminal on which a list has the screen for itself."""


@pytest.fixture(autouse=True, scope="session")
def parsed_once() -> Iterator[None]:
    """Let apps share the rules of their stylesheets: parsing them is a tenth of a test's CPU."""
    parse = Stylesheet._parse_rules

    def look_up(sheet: Stylesheet, css: str, *args: Any, **options: Any) -> list[RuleSet]:
        key = (frozenset(sheet._variables.items()), css, args, *options.items())
        if key not in PARSED:
            PARSED[key] = parse(sheet, css, *args, **options)
        return PARSED[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", look_up)
        yield


@pytest.fixture(autouse=True, scope="session")
def drawn_when_looked_at() -> Iterator[None]:
    """Let apps without a terminal draw only what a test reads; the rest is a third of their CPU."""

    def refresh(screen: Screen[Any]) -> None:
        if screen.app.is_headless and screen is screen.app.screen:
            screen._compositor._dirty_regions.clear()
            screen._dirty_widgets.clear()
            screen.app._update_mouse_over(screen)
        else:
            REFRESH(screen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Screen, "_compositor_refresh", refresh)
        yield


@pytest.fixture
def drawn_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let apps draw after each change, as on a terminal."""
    monkeypatch.setattr(Screen, "_compositor_refresh", REFRESH)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> FakeBackend:
    """A cluster without jobs, whose time is the clock's."""
    return FakeBackend(clock)


@pytest.fixture
def sit(cluster: FakeBackend) -> OpenSession:
    """Opens the app on the cluster: an async context manager that gives the seat."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Seat]:
        async with sitting(cluster, **options) as seat:
            yield seat

    return opened


@pytest.fixture
def cortex(tmp_path: Path, database: str) -> Cortex:
    return Cortex(tmp_path, database)


@pytest.fixture
def inbox(cluster: FakeBackend) -> FakeApprovals:
    return cluster.approvals
