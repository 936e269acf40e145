"""The code blocks of the manual, fenced and indented, with their place."""

import re
from pathlib import Path
from typing import Final

from attrs import frozen

ROOT: Final = Path(__file__).parent.parent.parent.parent
MANUAL: Final = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    # The others are generated from the code and compared with it, and show no commands.
    if path.parent.name != "reference" or path.name == "python.md"
)
SHELL: Final = ""
"""The language of an indented block."""
_BLOCK: Final = re.compile(
    r"^```(?P<language>\w*)\n(?P<fenced>.*?)^```$|(?P<indented>(?:^ {4}[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)
_NAME: Final = re.compile(r"# ([\w./-]+\.\w+)\n")


@frozen
class Block:
    """`file_name` is what the reader saves it as, from its first line."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        found = _NAME.match(self.text) if self.language != SHELL else None
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=found["language"] or SHELL,
            text=found["fenced"] or re.sub("^ {4}", "", found["indented"], flags=re.MULTILINE),
        )
        for found in _BLOCK.finditer(text)
    ]
