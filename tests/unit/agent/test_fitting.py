"""Tool output that is too large for the record becomes a file that the record names."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.tool import ToolContext
from cortex.agent.workspace import fitting
from cortex.agent.workspace.fitting import BEGINNING_BYTES, fitted
from cortex.domain import redaction
from cortex.domain.errors import CortexError, InvalidValueError
from cortex.domain.limits import CHECKPOINT, MIB, TOOL_OUTPUT
from cortex.durable.codec import encode
from tests.support.knowing import forget_secrets

KEY = "3 look up#2"


def text_of(size: int) -> str:
    """Text that takes this many bytes as JSON, its quotes included."""
    return "x" * (size - 2)


def limit_output(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = attrs.evolve(TOOL_OUTPUT, bytes_max=4 * MIB)
    monkeypatch.setattr(fitting, "TOOL_OUTPUT", limit)


@pytest.mark.parametrize("size", [2, 1_000, CHECKPOINT.bytes_max])
async def test_output_within_the_limit_is_unchanged(tmp_path: Path, size: int) -> None:
    output = text_of(size)
    assert await fitted(output, workspace=tmp_path, key=KEY) is output
    assert not any(os.scandir(tmp_path))


@pytest.mark.parametrize("size", [CHECKPOINT.bytes_max + 1, 9 * MIB])
async def test_oversized_output_becomes_a_readable_file(tmp_path: Path, size: int) -> None:
    output = text_of(size)
    report = await fitted(output, workspace=tmp_path, key=KEY)
    file = tmp_path / report["artefact"]
    assert file.read_text() == output
    assert report["bytes"] == file.stat().st_size == len(output)
    assert report["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert report["artefact"] == f"tool-output/3-look-up#2-{report['sha256'][:16]}.txt"
    assert len(report["beginning"].encode()) <= BEGINNING_BYTES
    assert report.keys() == {"artefact", "bytes", "sha256", "beginning"}
    assert len(encode(report, what="report", limit=CHECKPOINT)) < 2 * BEGINNING_BYTES
    context = ToolContext(job_id=Any, attempt=1, call_id="1", workspace=tmp_path)  # type: ignore[arg-type]
    read = await read_file.call(context, {"path": report["artefact"], "limit": 10})
    assert str(read).startswith("x" * 10)


async def test_rerun_step_reuses_the_same_output_file(tmp_path: Path) -> None:
    output = text_of(2 * MIB)
    first = await fitted(output, workspace=tmp_path, key=KEY)
    assert await fitted(output, workspace=tmp_path, key=KEY) == first
    other = await fitted(output + "y", workspace=tmp_path, key=KEY)
    assert other["artefact"] != first["artefact"]
    folder = tmp_path / "tool-output"
    assert sorted(each.name for each in folder.iterdir()) == sorted(
        Path(report["artefact"]).name for report in (first, other)
    )


async def test_structured_output_becomes_a_json_file(tmp_path: Path) -> None:
    output = {"rows": [{"n": n, "name": f"größe {n}"} for n in range(60_000)]}
    report = await fitted(output, workspace=tmp_path, key=KEY)
    assert report["artefact"].endswith(".json")
    assert json.loads((tmp_path / report["artefact"]).read_text()) == output
    assert report["beginning"].startswith('{"rows":[{"n":0,')


async def test_no_character_is_cut_in_the_beginning(tmp_path: Path) -> None:
    report = await fitted("ä" * MIB, workspace=tmp_path, key=KEY)
    assert set(report["beginning"]) == {"ä", "…"}


@pytest.mark.parametrize(
    "key", ["../../etc", "/abs", "a/b\\c", "\x1b]0;x\x07", "é" * 400, "x" * 400]
)
async def test_no_key_leads_out_of_the_workspace(tmp_path: Path, key: str) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    report = await fitted(text_of(2 * MIB), workspace=workspace, key=key)
    assert (workspace / report["artefact"]).is_file()
    assert report["artefact"].count("/") == 1
    assert report["artefact"].isascii()
    assert report["artefact"].isprintable()
    assert [each.name for each in os.scandir(tmp_path)] == ["workspace"]


async def test_secrets_are_in_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)
    redaction.register("TOKEN", "sk-0f9e8d7c")
    # One of them across the place where the beginning is cut.
    output = "sk-0f9e8d7c " + "x" * (BEGINNING_BYTES - 34) + " sk-0f9e8d7c" + "y" * MIB
    report = await fitted(output, workspace=tmp_path, key=KEY)
    content = (tmp_path / report["artefact"]).read_text()
    for text in (content, report["beginning"]):
        assert "sk-0f" not in text
        assert text.startswith("[secret TOKEN, 11 characters] x")


async def test_output_over_the_hard_limit_fails_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_output(monkeypatch)
    with pytest.raises(InvalidValueError) as caught:
        await fitted(text_of(4 * MIB + 1), workspace=tmp_path, key=KEY)
    report = f"the output of tool call {KEY!r} is 4,194,305 bytes of JSON, more than 4,194,304"
    assert caught.value.message == report
    assert caught.value.hint == TOOL_OUTPUT.way_out
    assert not any(os.scandir(tmp_path))


async def test_large_result_of_an_effect_is_cut_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_output(monkeypatch)
    output = text_of(9 * MIB)
    report = await fitted(output, workspace=tmp_path, key=KEY, is_effect=True)
    assert report["truncated"] == len(output)
    assert report["bytes"] == 4 * MIB
    assert (tmp_path / report["artefact"]).stat().st_size == 4 * MIB
    small = {"id": 7}
    assert await fitted(small, workspace=tmp_path, key=KEY, is_effect=True) is small


@pytest.mark.parametrize("where", ["a link", "a file", "nowhere"])
async def test_workspace_that_cannot_take_a_file_fails_all_but_effects(
    tmp_path: Path, where: str
) -> None:
    """A tool may have done that to it: an effect has happened all the same."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    outside.mkdir()
    if where != "nowhere":
        workspace.mkdir()
    if where == "a link":
        (workspace / "tool-output").symlink_to(outside)
    if where == "a file":
        (workspace / "tool-output").write_text("")
    output = text_of(2 * MIB)
    with pytest.raises(CortexError, match=r"tool-output|folder"):
        await fitted(output, workspace=workspace, key=KEY)
    report = await fitted(output, workspace=workspace, key=KEY, is_effect=True)
    assert report.keys() == {"problem", "bytes", "sha256", "beginning"}
    assert not any(os.scandir(outside))


@pytest.mark.parametrize("output", [float("nan"), "deep"], ids=str)
async def test_output_without_json_form_fails_a_call_but_no_effect(
    tmp_path: Path, output: Any
) -> None:
    if output == "deep":
        for _ in range(100):
            output = [output]
    with pytest.raises(InvalidValueError, match=f"output of tool call '{KEY}'"):
        await fitted(output, workspace=tmp_path, key=KEY)
    report = await fitted(output, workspace=tmp_path, key=KEY, is_effect=True)
    assert "output of tool call" in report["problem"]
    assert encode(report, what="report")


async def test_a_disc_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named pipe without a reader simulates it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(fitting, "WRITE_S", 0.5)
    monkeypatch.setattr(fitting, "write_whole", lambda *_: pipe.write_bytes(b""))
    report = await fitted(text_of(2 * MIB), workspace=tmp_path, key=KEY, is_effect=True)
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # let the thread go
    assert "could not be written within" in report["problem"]
