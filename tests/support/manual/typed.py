"""Checks the types of the manual's Python: `python -m tests.support.manual.typed`.

Every example passes `mypy --strict` and pyright in strict mode as it stands, and so do the files of
`tests/typed`. Each checker is one process for all pages; what it finds is printed as `page:line`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.manual.blocks import MANUAL, ROOT, Block, blocks

TYPED: Final = ROOT / "tests" / "typed"
"""Programs that say which types they expect."""
PROJECT: Final = ROOT / "cortex" / "cli" / "project" / "template"
CANARY: Final = Block(page="canary.md", line=7, language="python", text='wrong: int = ""\n')
"""An example that both checkers must report, or they have not looked."""


def examples(pages: tuple[str, ...] = MANUAL) -> list[Block]:
    """Return the Python blocks of these pages, and the files that `cortex init` writes."""
    found = [block for page in pages for block in blocks(page) if block.language == "python"]
    return [*found, *_project()]


def _project() -> list[Block]:
    return [
        Block(page=PROJECT.name, line=0, language="python", text=file.read_text("utf-8"))
        for file in sorted(PROJECT.glob("*.py"))
    ]


def write(found: list[Block], folder: Path) -> dict[str, str]:
    """Write each page's blocks as a package, every line where it stands in the page.

    Returns the page of each file.
    """
    siblings: dict[str, set[str]] = {}
    for block in found:
        siblings.setdefault(block.page, set()).add(Path(_name(block)).stem)
    pages = {}
    for block in found:
        text = block.text
        for name in siblings[block.page]:  # pages may use one name for different files
            text = re.sub(rf"^(from|import) {name}\b", rf"from .{name}", text, flags=re.MULTILINE)
        package = folder / re.sub(r"\W", "_", block.page.removesuffix(".md"))
        package.mkdir(exist_ok=True)
        file = package / _name(block)
        file.write_text("\n" * block.line + text, "utf-8")
        pages[str(file)] = block.page
    return pages


def _name(block: Block) -> str:
    return block.file_name or f"line_{block.line}.py"


def by_mypy(folder: Path, pages: Mapping[str, str]) -> list[str]:
    """Return what mypy finds, with this project's settings, which include `--strict`."""
    ended = subprocess.run(
        # The package is named to share the cache of a run on the whole project.
        [sys.executable, "-m", "mypy", "cortex", str(TYPED), *pages],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    found = re.findall(r"^(.+?):(\d+): (error: .*)$", ended.stdout, re.MULTILINE)
    assert bool(found) == bool(ended.returncode), ended.stdout + ended.stderr
    return [_line(file, int(line), f"mypy: {text}", pages) for file, line, text in found]


def by_pyright(folder: Path, pages: Mapping[str, str]) -> list[str]:
    """Return what pyright finds in strict mode."""
    settings = folder / "pyrightconfig.json"
    settings.write_text(
        json.dumps({"include": [str(folder), str(TYPED)], "typeCheckingMode": "strict"}), "utf-8"
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(settings)]
    ended = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False
    )
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    checked = report["summary"]["filesAnalyzed"]
    assert checked == len(pages) + len(list(TYPED.glob("*.py"))), ended.stdout
    return [
        _line(
            each["file"], each["range"]["start"]["line"] + 1, f"pyright: {each['message']}", pages
        )
        for each in report["generalDiagnostics"]
    ]


def _line(file: str, line: int, text: str, pages: Mapping[str, str]) -> str:
    # From its cache mypy repeats an error with the path of an earlier run's folder.
    written = {Path(each).parts[-2:]: page for each, page in pages.items()}
    place = written.get(Path(file).parts[-2:]) or os.path.relpath(ROOT / file, ROOT)
    return f"{place}:{line}: {text}"


def problems(found: list[Block]) -> list[str]:
    """Return what each checker finds in these blocks and in the typed programs."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        pages = write([*found, CANARY], folder)
        for check in (by_mypy, by_pyright):
            lines = check(folder, pages)
            seen = [each for each in lines if each.startswith(f"{CANARY.page}:{CANARY.line + 1}: ")]
            assert seen, f"{check.__name__} does not report {CANARY.text}"
            wrong += [each for each in lines if each not in seen]
    return wrong


def main() -> None:
    """Exit with 1 if a checker finds something."""
    found = examples()
    if wrong := problems(found):
        sys.exit("\n".join(wrong))
    sys.stdout.write(f"{len(found)} examples have types that mypy and pyright accept\n")


if __name__ == "__main__":
    main()
