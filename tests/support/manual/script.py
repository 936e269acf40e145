"""A page of the manual as one shell script, and what each of its blocks has written."""

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.manual.blocks import SHELL, Block, blocks
from tests.support.manual.scenes import SCENES, By, Compared, Run, Scene

END_WITHIN_S: Final = 280.0
RELEASE_WITHIN_S: Final = 1700.0
"""An installation, or a chaos run: minutes on a free machine, more on a busy one."""
GRACE_S: Final = 5.0
"""Time for what a script started to end by itself."""
BEGIN: Final = "\x1e"
"""Written before each block, with its line."""
_HEAD: Final = """\
set -eE
shopt -s inherit_errexit
exec 2>&1
trap 'echo "failed: $BASH_COMMAND"' ERR
trap 'for each in $(jobs -p); do kill $each || true; done; wait' EXIT
until_true() {
    for _ in {1..300}; do if eval "$1" > /dev/null 2>&1; then return; fi; sleep 0.2; done
    echo "never: $1"; return 1
}
"""
_VOLATILE: Final = re.compile(r"\S*[\d█▏▎▍▌▋▊▉░◆…]\S*|/\S*|root|ana")
"""Words that differ between two runs: figures, bars, ids, paths, the user."""


def stage_of(block: Block) -> Run | By | Compared:
    """Return how a block is made true: as its scene says, or as blocks of its kind are."""
    scene = SCENES.get(block.page, Scene())
    for start, stage in scene.blocks.items():
        if block.text.startswith(start):
            return stage
    if block.language == "pyi":
        return By("tests/test_docs.py::test_reference_pages_are_those_of_the_code")
    if block.language == "text":
        return Compared()
    if block.language == "sql":
        return Run('sql "$(cat $BLOCK)"')
    assert block.language == SHELL or block.file_name, (
        f"{block}: scenes.py does not say what runs it"
    )
    return Run()


def fits(shown: str, output: str) -> bool:
    """Return whether output has the shown lines, in order, but for figures and what `…` omits."""
    lines = iter(output.splitlines())
    wanted = [line for line in shown.splitlines() if line.strip() not in {"", "…"}]
    return all(any(_is_line(each, line) for line in lines) for each in wanted)


def _is_line(shown: str, line: str) -> bool:
    words, found = _stable(shown), _stable(line)
    if "…" not in re.split(r"[\s,]+", shown):
        return words == found
    rest = iter(found)
    return all(word in rest for word in words)


def _stable(line: str) -> list[str]:
    return [word for word in line.split() if not _VOLATILE.fullmatch(word)]


def play(page: str, *, folder: Path, environment: Mapping[str, str], release: bool) -> None:
    """Run the blocks of a page in an empty folder; compare what it shows with what they write."""
    scene = SCENES.get(page, Scene())
    script = _HEAD + scene.given + "\n" + "".join(_pieces(page, scene, folder, release=release))
    output = run_script(
        script + scene.after,
        folder=folder,
        environment=environment,
        within_s=RELEASE_WITHIN_S if release else END_WITHIN_S,
        what=page,
    )
    first, *parts = output.split(BEGIN)
    outputs = {int(each.split("\n", 1)[0]): each.split("\n", 1)[1] for each in parts}
    last = first
    for block in blocks(page):
        last = outputs.get(block.line, last)
        if isinstance(stage_of(block), Compared):
            assert fits(block.text, last), f"{block} shows\n{block.text}\nand not\n{last}"


def run_script(
    script: str, *, folder: Path, environment: Mapping[str, str], within_s: float, what: str
) -> str:
    """Run a script of bash; return what it has written.

    Raises `AssertionError` with that text if the script fails or takes longer. Nothing that it
    started goes on, and output that a process in the background holds open is not waited for.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            start_new_session=True,
        )
        try:
            ended = str(process.wait(within_s))
        except subprocess.TimeoutExpired:
            ended = f"no end within {within_s:g} s"
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    assert ended == "0", f"{what}: {ended}\n{text}"
    return text


def _pieces(page: str, scene: Scene, folder: Path, *, release: bool) -> Iterator[str]:
    for block in blocks(page):
        stage = stage_of(block)
        if not isinstance(stage, Run) or (stage.release and not release):
            continue
        text = block.text
        for word, replacement in scene.words.items():
            text = text.replace(word, replacement.replace("{folder}", str(folder)))
        yield f"{stage.before}\nprintf '{BEGIN}{block.line}\\n'\n"
        if block.language == SHELL:
            yield text if stage.how is None else stage.how
            continue
        yield f"BLOCK={block.file_name or f'block-{block.line}'}\n"
        yield f"printf %s {shlex.quote(text)} > $BLOCK\n"
        yield f"{stage.how or ''}\n"


def runs(page: str, *, release: bool) -> bool:
    """Return whether the gate, or a release, runs a block of this page."""
    stages = [stage_of(block) for block in blocks(page)]
    found = [stage for stage in stages if isinstance(stage, Run)]
    return (
        any(stage.release for stage in found)
        if release
        else any(not each.release for each in found)
    )
