"""The demo's agent on real folders, with the real tools."""

import copy
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from cortex.agent.tools import BUILT_IN
from cortex.agent.tools.tool import ToolContext
from cortex.demo.script import Call, Reply
from cortex.demo.script_inspect import inspect
from cortex.demo.script_inspect_findings import findings
from cortex.domain.errors import CortexError

OFFERED = ("list_files", "read_file", "run_command", "write_file")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@pytest.fixture
def context(tmp_path: Path, folder: Path) -> ToolContext:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return ToolContext(
        job_id=UUID(int=1), attempt=1, call_id="c", workspace=workspace, folder=folder
    )


def call_with(messages: list[dict[str, Any]], offered: tuple[str, ...] = OFFERED) -> Call:
    return Call(
        model="scripted",
        system="",
        messages=copy.deepcopy(messages),
        tools=[{"name": name} for name in offered],
        max_tokens=4_000,
        stream=True,
        input_tokens=1,
    )


async def run(
    context: ToolContext, offered: tuple[str, ...] = OFFERED
) -> tuple[list[dict[str, Any]], str]:
    """Play the conversation to its end; return the messages, and the model's last words."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Inspect this folder."}]
    for _ in range(10):
        reply = inspect(call_with(messages, offered))
        assert isinstance(reply, Reply)
        messages.append({"role": "assistant", "content": [dict(each) for each in reply.content]})
        uses = [block for block in reply.content if block["type"] == "tool_use"]
        if not uses:
            return messages, reply.content[0]["text"]
        results = [await result_of(context, dict(use)) for use in uses]
        messages.append({"role": "user", "content": results})
    pytest.fail("the script did not come to an end")


async def result_of(context: ToolContext, use: dict[str, Any]) -> dict[str, Any]:
    try:
        output = await BUILT_IN[use["name"]].call(context, use["input"])
    except CortexError as error:
        return result_block(use, error.message, is_error=True)
    return result_block(use, output if isinstance(output, str) else orjson.dumps(output).decode())


def result_block(use: dict[str, Any], text: str, *, is_error: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    block = {"type": "tool_result", "tool_use_id": use["id"], "content": content}
    return {**block, "is_error": True} if is_error else block


def rounds(messages: list[dict[str, Any]]) -> list[list[str]]:
    """The names of the tools asked for, answer by answer."""
    return [
        [block["name"] for block in message["content"] if block["type"] == "tool_use"]
        for message in messages
        if message["role"] == "assistant"
    ]


def written_report(context: ToolContext) -> str:
    return (context.workspace / "report.md").read_text(encoding="utf-8")


def make_project(folder: Path) -> str:
    """A small project under git; the short hash of its only commit."""
    files = {
        "README.md": "# Lighthouse\n\nKeeps ships off the rocks.\n",
        "LICENSE": "free\n",
        "pyproject.toml": '[project]\nname = "lighthouse"\ndependencies = ["trio", "attrs"]\n',
        "lamp.py": '"""Turns the lamp."""\n' + "x = 1\n" * 599,
        "src/horn.py": '"""Blows the horn."""\n# TODO: louder\n' + "y = 2\n" * 28,
        "tests/test_lamp.py": "z = 3\n" * 10,
        "node_modules/left.js": "var a;\n" * 5_000,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    (folder / "logo.png").write_bytes(b"\x89PNG\0\0")
    git = ["git", "-c", "user.name=Ida", "-c", "user.email=ida@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Light | the lamp"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    head = [*git, "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        head, cwd=folder, capture_output=True, check=True, text=True
    ).stdout.strip()


async def test_report_contains_facts_of_the_folder(context: ToolContext, folder: Path) -> None:
    short = make_project(folder)
    messages, said = await run(context)
    report = written_report(context)
    assert report.startswith("# Inspection of Lighthouse\n")
    assert "> Keeps ships off the rocks." in report
    assert "| `lamp.py` | 600 | Turns the lamp. |" in report
    assert "| `src/horn.py` | 30 | Blows the horn. |" in report
    assert "| Python | 3 | 640 | " in report
    assert "left.js" not in report
    assert f"- `{short}` Light \\| the lamp" in report
    assert "1 commit by 1 author: Ida (1)." in report
    assert "`lamp.py` is the longest source with 600 lines." in report
    assert "`src/horn.py` holds 1 note of open work" in report
    assert "`pyproject.toml` names 2 dependencies." in report
    assert short in said
    assert "What did not work" not in report
    look, measure, read, write, close = rounds(messages)
    assert look == ["list_files", "run_command"]
    assert measure == ["run_command", "run_command", "read_file", "read_file"]
    assert read == ["read_file"] * 3
    assert (write, close) == (["write_file"], [])


async def test_resumed_conversation_continues_identically(
    context: ToolContext, folder: Path
) -> None:
    make_project(folder)
    messages, _ = await run(context)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            again = inspect(call_with(messages[:index]))
            assert isinstance(again, Reply)
            assert [dict(block) for block in again.content] == message["content"]


async def test_empty_folder_is_reported(context: ToolContext) -> None:
    messages, _ = await run(context)
    assert rounds(messages) == [["list_files", "run_command"], ["write_file"], []]
    report = written_report(context)
    assert "The folder holds no files." in report
    assert "not a git repository" in report


async def test_generated_folders_are_not_counted(context: ToolContext, folder: Path) -> None:
    """As `uv run` leaves a checkout: its environment holds more files than the project."""
    make_project(folder)
    packages = folder / ".venv" / "lib"
    packages.mkdir(parents=True)
    (folder / ".venv" / "CACHEDIR.TAG").touch()
    for number in range(1_200):
        (packages / f"m{number}.py").touch()
    messages, said = await run(context)
    report = written_report(context)
    assert "| Files | 7 |" in report
    assert "| In hidden or generated folders | 0 more |" in report
    assert "| Python | 3 | 640 | " in report
    assert "Not looked into, since tools fill it: `.venv/`, `node_modules/`." in report
    assert "There are 7 files." in str(messages)
    assert "7 files, 640 lines of source" in said
    assert "at least" not in report + said


async def test_truncated_file_list_is_reported(
    context: ToolContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(folder)
    monkeypatch.setattr("cortex.demo.script_inspect.LISTED_FILES_MAX", 5)
    monkeypatch.setattr("cortex.demo.script_inspect.MEASURED_FILES_MAX", 0)
    messages, said = await run(context)
    report = written_report(context)
    assert "| Files | at least 4 |" in report
    assert "The list of files was cut: there are more." in report
    assert "There are at least 4 files." in str(messages)
    assert "at least 4 files" in said


async def test_unmeasured_sources_are_reported(
    context: ToolContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, lines in (("a.py", 600), ("b.py", 30)):
        (folder / name).write_text("x = 1\n" * lines)
    monkeypatch.setattr("cortex.demo.script_inspect.MEASURED_FILES_MAX", 1)
    _, said = await run(context)
    report = written_report(context)
    assert "| Files | 2 |" in report
    assert "| Lines of source | at least 600 |" in report
    assert "Of 1 source the lines were not counted." in report
    assert "2 files, at least 600 lines of source" in said


async def test_git_names_the_sources_however_many_there_are(
    context: ToolContext, folder: Path
) -> None:
    """Also new ones and empty ones, and beside one that is gone; not what git ignores."""
    make_project(folder)
    (folder / "tests/test_lamp.py").unlink()
    (folder / ".gitignore").write_text("made.py\n")
    for name, lines in (("new é's.PY", 7), ("empty.py", 0), ("made.py", 9)):
        (folder / name).write_text("x = 1\n" * lines)
    for number in range(500):
        (folder / "src" / f"m{number}.py").write_text("y = 2\n")
    messages, _ = await run(context)
    report = written_report(context)
    assert "| Python | 505 | 1,137 | " in report
    assert "Of 1 source the lines were not counted." in report
    assert "| `new é's.PY` | 7 | " in report
    assert "m499" not in str([each for each in messages if each["role"] == "assistant"])
    assert "What did not work" not in report


def test_counts_beside_a_gap_are_not_believed() -> None:
    listed = {"paths": ["a.py", "b.py", "c.py", "d.py"], "truncated": False, "left_out": []}
    output = " 11 a.py\n 22 b.py\n[… 99 bytes left out …]\n3 c.py\n 44 d.py\n 999 total\n"
    asked = [
        ("list_files", {"pattern": "**/*"}, listed),
        ("run_command", {"argv": ["sh", "-c", "…"]}, {"exit_code": 123, "stdout": output}),
    ]
    uses = [
        {"type": "tool_use", "id": str(n), "name": name, "input": given}
        for n, (name, given, _) in enumerate(asked)
    ]
    results = [
        result_block(use, orjson.dumps(shown).decode())
        for use, (_, _, shown) in zip(uses, asked, strict=True)
    ]
    messages = [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    assert findings(call_with(messages)).lines == {"a.py": 11, "d.py": 44}


async def test_odd_file_names_are_reported_safely(context: ToolContext, folder: Path) -> None:
    (folder / "-n.py").write_text("a\n")
    (folder / "we|ird `name`.py").write_text("a\nb\n")
    (folder / "binary.py").write_bytes(b"\0\1\n\n\n")
    (folder / "two\nlines.py").write_text("a\n")
    (folder / "empty.md").write_text("")
    (Path(str(folder)) / "link").symlink_to("/etc/passwd")
    (folder / "latin-\udce9.py").write_text("a\n")
    await run(context)
    report = written_report(context)
    assert "| `we\\|ird 'name'.py` | 2 |" in report
    assert "| `-n.py` | 1 |" in report
    assert "`read_file binary.py`: 'binary.py' is a binary file" in report
    assert "passwd" not in report


async def test_only_offered_tools_are_used(context: ToolContext, folder: Path) -> None:
    make_project(folder)
    messages, said = await run(context, offered=("list_files", "read_file"))
    assert {name for names in rounds(messages) for name in names} == {"list_files", "read_file"}
    assert said.startswith("# Inspection of Lighthouse")


def test_failing_tools_end_the_inspection() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Inspect."}]
    said = ""
    while not said:
        reply = inspect(call_with(messages))
        assert isinstance(reply, Reply)
        messages.append({"role": "assistant", "content": [dict(each) for each in reply.content]})
        uses = [block for block in reply.content if block["type"] == "tool_use"]
        results = [result_block(dict(use), "no disc", is_error=True) for use in uses]
        messages.append({"role": "user", "content": results})
        said = "" if uses else reply.content[0]["text"]
    assert "could not write report.md: no disc" in said
    assert len(messages) <= 8
