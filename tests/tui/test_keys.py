"""The table of keys, and what `keys.toml` may change."""

from pathlib import Path

import pytest

from cortex.domain.errors import UsageError
from cortex_tui.app import OPENED, SCREENS
from cortex_tui.key import EVERYWHERE, GROUPS
from cortex_tui.key_table import clashes, read_keys, remapped
from cortex_tui.keys import KEYS
from cortex_tui.screens.frame import Frame
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession

FRAMES: dict[str, type[Frame]] = {
    name: kind for name, kind in (*SCREENS.items(), *OPENED.items()) if isinstance(kind, type)
}


def test_key_table_has_no_clashes() -> None:
    assert list(clashes(KEYS)) == []
    assert len({key.id for key in KEYS}) == len(KEYS)
    assert {key.group for key in KEYS} <= set(GROUPS)
    assert {name for key in KEYS for name in key.where} <= {EVERYWHERE, *FRAMES}


GUARDED = {"approvals.approve", "approvals.deny"}
"""Small letters: nothing follows from them without a silence before the next key."""


def test_y_belongs_to_the_questions_alone() -> None:
    assert [key.id for key in KEYS if "y" in key.keys] == []


def test_acting_keys_are_capitals_and_only_they_act() -> None:
    assert all(key.keys[0].isupper() or key.id in GUARDED for key in KEYS if key.is_acting)
    assert {key.group for key in KEYS if key.is_acting} == {"act"}


@pytest.mark.parametrize("name", FRAMES)
def test_every_key_does_something_on_its_screens(name: str) -> None:
    kind = FRAMES[name]
    assert name == kind.NAME
    for key in KEYS:
        if key.is_on(name) and not key.action.startswith("app."):
            method = f"action_{key.action.partition('(')[0]}"
            assert hasattr(kind, method), f"{key.id} on {name}"


def test_acting_keys_that_differ_by_case_are_refused() -> None:
    with pytest.raises(UsageError, match="differ by case only: k"):
        remapped({"jobs.retry": "k", "list.up": "up"})


@pytest.mark.parametrize(
    "text, output",
    [
        ('"jobs.cancle" = "x"', "no action 'jobs.cancle'"),
        ('"jobs.cancel" = "j"', "j would be both list.down and jobs.cancel"),
        ('"jobs.cancel" = 3', "is not a key"),
        ('"jobs.cancel" = "y"', "jobs.cancel cannot be y"),
        ('"approvals.approve" = ["a", "y"]', "approvals.approve cannot be y"),
        ('"jobs.cancel" = "j,x"', "jobs.cancel is not one key: 'j,x'"),
        ('"jobs.cancel" = "!"\n"filter" = "exclamation_mark"', "would be both filter and jobs"),
        ('"jobs.cancel" = []', "is not a key"),
        ('"jobs.cancel" = ["f5", "cntrl+k"]', r"no key is called 'cntrl\+k'"),
        ('"jobs.cancel" = "delte"', "no key is called 'delte'"),
        ("jobs.cancel =", "keys.toml"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, output: str) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(UsageError, match=output):
        read_keys(tmp_path / "keys.toml")


def test_keys_have_the_names_that_people_see_and_those_of_the_table() -> None:
    for key in KEYS:
        assert remapped({key.id: list(key.keys)}).named(key.id).keys == key.keys
    assert remapped({"jobs.columns": "%"}).named("jobs.columns").keys == ("percent_sign",)
    for name in ("ctrl+ü", "alt+x", "shift+f1", "delete", "percent_sign"):
        assert remapped({"jobs.columns": name}).named("jobs.columns").keys == (name,)
    assert remapped({"list.down": "↓"}).named("list.down").keys == ("down",)


def test_missing_keys_file_keeps_the_defaults(tmp_path: Path) -> None:
    assert read_keys(tmp_path / "keys.toml").keys == KEYS


def test_a_sign_is_a_key_like_others() -> None:
    keys = remapped({"jobs.cancel": ["!", ","], "filter": "/"})
    assert keys.named("jobs.cancel").keys == ("exclamation_mark", "comma")
    assert keys.named("filter").keys == ("slash",)


@pytest.mark.parametrize("sign", [*"!,;%&#'\"", "ctrl+!", "é", "ctrl+é"])
@on_asyncio
async def test_a_sign_is_shown_as_itself(sit: OpenSession, sign: str) -> None:
    async with sit(keys=remapped({"jobs.cancel": sign})) as seat:
        assert f"{sign} cancel" in seat.lines[-1]


@on_asyncio
async def test_other_keys_work_and_show(cluster: FakeBackend, sit: OpenSession) -> None:
    job = cluster.add(1)
    async with sit(keys=remapped({"jobs.cancel": "ctrl+k", "filter": "f"})) as seat:
        assert "ctrl+k cancel" in seat.lines[-1]
        assert "f filter" in seat.lines[-1]
        await seat.press("K", "y")
        assert cluster.acted == []
        await seat.press("ctrl+k", "y")
        assert cluster.acted == [("cancel", job, "ana")]


@pytest.mark.parametrize("name", FRAMES)
@on_asyncio
async def test_the_help_is_whole_on_the_smallest_full_screen(sit: OpenSession, name: str) -> None:
    async with sit(size=(80, 24)) as seat:
        seat.app.context.open("help", name)
        await seat.settle()
        seen = seat.text
        for _ in range(6):
            await seat.press("ctrl+d")
            seen += seat.text
        output = [key.help for key in KEYS if key.is_on(name)]
        assert [each for each in output if each not in seen] == []
