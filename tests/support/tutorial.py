"""The tutorial as a program: its files, and its commands as one shell script."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorial.md"
SECTIONS_THAT_RUN = range(2, 9)
"""The first one installs Cortex, the last one needs systemd or a cluster."""
_FILE = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?:    (?P<command>\S.*)|<!-- until: (?P<until>.+) -->)$", re.MULTILINE)
END = "trap 'for each in $(jobs -p); do kill $each || true; done; wait' EXIT"


def files() -> dict[str, str]:
    """The files that a reader writes, by name."""
    return dict(_FILE.findall(PAGE.read_text("utf-8")))


def script() -> str:
    """The commands that a reader types, and what a reader waits for in between."""
    parts = re.split(r"^## (\d+)\..*$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    sections = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    text = "".join(sections[number] for number in SECTIONS_THAT_RUN)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [
        each["command"] or f"until {each['until']}; do kill -0 $POD; sleep 0.5; done"
        for each in _LINE.finditer(prose)
    ]
    return "\n".join([END, *lines]) + "\n"
