"""`c` and `e`: what is copied, saved and opened, and the message when that fails."""

import asyncio
import json
import shlex
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from uuid import UUID

import pytest
from textual import events

from cortex_tui import editor
from cortex_tui.app import CortexApp
from tests.support.hostile import HOSTILE, treacherous
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.support.terminal.tui_job import BEGAN, a_step
from tests.tui.conftest import OpenSession

ID = UUID(int=1)


@pytest.mark.parametrize("first", ["jobs", "job"])
@on_asyncio
async def test_id_json_and_command_of_a_job(
    cluster: FakeBackend, sit: OpenSession, first: str
) -> None:
    cluster.add(1, steps=[a_step(1, "plan")], started_at=BEGAN)
    cluster.one.details["plan"] = {"output": '{"said": "tea\u202e"}'}
    async with sit() as seat:
        if first == "job":
            await seat.press("enter")
            await seat.pass_time(2)
        await seat.press("c")
        assert "i id  j JSON  c command  s screenshot" in seat.lines[-2]
        await seat.press("i")
        assert seat.app.clipboard == str(ID)
        assert f"copied {ID}" in seat.lines[-2]
        await seat.press("c", "c")
        assert seat.app.clipboard == f"cortex jobs show {ID}"
        await seat.press("c", "j")
        document = json.loads(seat.app.clipboard)
        assert document["job"]["id"] == str(ID)
        assert ("step" in document) is (first == "job")
        assert treacherous(seat.app.clipboard.replace("\n", " ")) == []
        if first == "job":
            assert document["step"]["key"] == "plan"
            assert document["step"]["output"] == '{"said": "tea\u202e"}'


@on_asyncio
async def test_a_screen_is_saved_to_a_file_that_is_named(
    cluster: FakeBackend, sit: OpenSession, tmp_path: Path
) -> None:
    cluster.add(1, agent=HOSTILE)
    async with sit(pictures=tmp_path / "shots", size=(200, 40)) as seat:
        await seat.press("c", "s")
        await seat.settle()
        (path,) = (tmp_path / "shots").iterdir()
        assert f"saved {path.name} in " in seat.lines[-2]
        picture = path.read_text("utf-8")
        assert picture.startswith("<svg")
        assert "000001" in picture
        assert "screenshot" not in picture, "the question is not on it"
        assert treacherous(picture.replace("\n", " ")) == []


@on_asyncio
async def test_names_that_others_chose_are_harmless_where_they_are_pasted(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.breakers.add(f"llm:{HOSTILE}\nid\n", state="OPEN", opened_at=cluster.breakers.now)
    async with sit(first="breakers") as seat:
        await seat.pass_time(1)
        await seat.press("c", "i")
        assert seat.app.clipboard.startswith("llm:")
        assert treacherous(seat.app.clipboard) == []
        await seat.press("O", *"fine", "enter", "y")
        await seat.press("@", "c", "c")
        assert seat.app.clipboard.startswith("cortex breakers close $'llm:")
        assert treacherous(seat.app.clipboard) == []


@on_asyncio
async def test_open_log_shows_actions_as_they_end(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("K", "y", "@")
        assert "nothing was done here yet" in seat.text
        cluster.gate.set()
        await seat.settle()
        await seat.pass_time(1)
        assert f"cortex jobs cancel {ID} --yes --as ana" in seat.text
        await seat.press("c", "c")
        assert seat.app.clipboard == f"cortex jobs cancel {ID} --yes --as ana"


@on_asyncio
async def test_a_folder_that_cannot_be_written_is_named(
    cluster: FakeBackend, sit: OpenSession, tmp_path: Path
) -> None:
    cluster.add(1)
    (tmp_path / "file").write_text("")
    async with sit(pictures=tmp_path / "file" / "shots", size=(200, 40)) as seat:
        await seat.press("c", "s")
        await seat.settle()
        assert "✗ " in seat.lines[-2]
        assert "ot a directory" in seat.lines[-2]


@on_asyncio
async def test_esc_cancels_copying_and_other_keys_are_ignored(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("c", "x", "q", "y")
        assert seat.app.is_running
        assert "copy?" in seat.lines[-2]
        await seat.press("escape")
        assert "nothing was copied" in seat.text
        assert seat.app.clipboard == ""


@on_asyncio
async def test_two_keys_at_once_are_enough_to_copy(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        for key in "ci":
            seat.app.post_message(events.Key(key, key))
        await seat.settle()
        assert seat.app.clipboard == str(ID)


@on_asyncio
async def test_two_keys_at_once_are_not_enough_to_act(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        for key in "Ky":
            seat.app.post_message(events.Key(key, key))
        await seat.settle()
        assert "…000001, ○ pend?" in seat.text
        assert cluster.acted == []


@on_asyncio
async def test_empty_screen_offers_only_a_screenshot(sit: OpenSession) -> None:
    async with sit() as seat:
        await seat.press("c")
        assert "i id" not in seat.lines[-2]
        assert "s screenshot" in seat.lines[-2]
        await seat.press("escape", "e")
        assert "there is nothing here" in seat.text


@on_asyncio
async def test_oversized_text_is_not_copied(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, error_message="x" * 80_000)
    async with sit() as seat:
        await seat.press("c", "j")
        await seat.settle()
        assert "bytes are more than a terminal takes" in seat.text
        assert seat.app.clipboard == ""


@on_asyncio
async def test_copying_without_the_database_shows_the_error(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.down()
        await seat.press("c", "j")
        await seat.settle()
        assert "✗ cannot reach the database" in seat.text


@on_asyncio
async def test_the_log_gives_its_commands(cluster: FakeBackend, sit: OpenSession) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        await seat.press("K", "y", "@", "c", "c")
        assert seat.app.clipboard == f"cortex jobs cancel {job} --yes --as ana"


@pytest.mark.parametrize("screen, report", [("approvals", "approvals show"), ("pods", "eu-1")])
@on_asyncio
async def test_other_screens_copy_their_resources(
    cluster: FakeBackend, sit: OpenSession, screen: str, report: str
) -> None:
    cluster.approvals.add(1)
    cluster.pods.add(1)
    async with sit(first=screen) as seat:
        await seat.pass_time(2)
        await seat.press("c", "j")
        await seat.settle()
        assert json.loads(seat.app.clipboard)
        if screen == "approvals":
            await seat.press("c", "c")
        assert report in seat.app.clipboard


@on_asyncio
async def test_an_editor_needs_a_terminal(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("e")
        await seat.settle()
        assert "an editor needs a terminal" in seat.text


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that an editor of ours writes: the path that it was given."""
    seen = tmp_path / "seen"
    code = f'import sys; open("{seen}", "w").write(sys.argv[1])'
    monkeypatch.setenv("VISUAL", shlex.join((sys.executable, "-c", code)))
    monkeypatch.setattr(CortexApp, "suspend", lambda _: nullcontext())
    monkeypatch.setattr(editor, "_interrupts_for_the_editor", nullcontext)  # a thread has none
    return seen


def found_beside(seen: Path) -> list[str]:
    assert Path(seen.read_text()).name == "cortex.json"
    return [path.name for path in seen.parent.iterdir()]


@pytest.mark.parametrize("screen", ["pods", "breakers"])
@pytest.mark.parametrize("name", ["{folder}/seized", "a/b", "..", "n" * 300])
@on_asyncio
async def test_a_name_chooses_no_file(
    cluster: FakeBackend, sit: OpenSession, seen: Path, screen: str, name: str
) -> None:
    named = name.format(folder=seen.parent)
    cluster.queues.add(named)
    cluster.breakers.add(named)
    async with sit(first=screen) as seat:
        await seat.pass_time(2)
        await seat.press("j", "e")
        await seat.settle()
        assert seat.app.is_running
        assert found_beside(seen) == ["seen"]


# --- the editor itself


def run_by(code: str) -> dict[str, str]:
    return {"EDITOR": f"{sys.executable} -c '{code}'"}


def test_editor_gets_a_read_only_temporary_copy(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    lines = (
        "import pathlib, sys",
        "given = pathlib.Path(sys.argv[1])",
        "seen = [str(given), str(given.stat().st_mode), given.read_text()]",
        f'pathlib.Path("{seen}").write_text(chr(10).join(seen))',
    )
    code = "; ".join(lines)
    assert editor.show('{"a": 1}', environ=run_by(code)) == ""
    name, mode, text = seen.read_text().split("\n")
    assert (Path(name).name, text) == ("cortex.json", '{"a": 1}')
    assert stat.S_IMODE(int(mode)) == 0o400
    assert not Path(name).exists()


def test_ctrl_c_is_the_editors() -> None:
    code = "import os, signal; os.kill(os.getppid(), signal.SIGINT)"
    assert editor.show("{}", environ=run_by(code)) == ""


@pytest.mark.parametrize(
    "environ, report",
    [
        ({"EDITOR": "/no/such/editor"}, "'/no/such/editor' cannot be started"),
        ({"EDITOR": "vi '"}, "$EDITOR is"),
        (run_by("raise SystemExit(3)"), "ended with 3"),
    ],
)
def test_unusable_editor_is_named(environ: dict[str, str], report: str) -> None:
    assert report in editor.show("{}", environ=environ)


def test_missing_temporary_folder_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    report = editor.show("{}", environ=run_by("raise SystemExit(3)"))
    assert report == "a copy for the editor cannot be kept: No such file or directory; see $TMPDIR"
