"""Tools of MCP servers, and whether a person has to look at them."""

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import orjson

from cortex.domain.known_tool import KnownTool, ToolState
from cortex.domain.safe import escaped, safe
from cortex.store import mcp
from cortex.view.cells import Cell
from cortex.view.resource import Field, WholeResource, on_demand

HEAD_LINES: Final = 2
"""Of a diff: the names of two files."""
_LINE_BREAK: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
"""An escaped one in JSON, and not a backslash before an n."""
_BLANKS: Final = re.compile(r" +$")
_STYLES: Final = {
    ToolState.ACCEPTED: "done",
    ToolState.CHANGED: "warn",
    ToolState.NEW: "warn",
    ToolState.GONE: "dim",
}

FIELDS: Final[Sequence[Field[KnownTool]]] = (
    Field(name="name", title="tool", doc="server.tool, as approvals and effects name it", least=10),
    Field(
        name="state",
        doc="accepted, changed, new or gone",
        shown=lambda r: Cell(r.state.value, _STYLES[r.state]),
    ),
    Field(
        name="accepted_by",
        title="accepted",
        doc="who accepted it; null: the first use of its server",
        shown=lambda r: Cell(safe(r.accepted_by or ("first use" if r.accepted else ""))),
    ),
    *on_demand("agent", "server", "tool", "identity", "accepted_at", "offered_at"),
)

MCP_TOOLS: Final = WholeResource(
    name="ServerTool",
    noun="tools",
    doc="A tool of an MCP server that an agent has used.",
    row=KnownTool,
    fields=FIELDS,
    empty="no agent has used an MCP server yet",
    page=mcp.page,
    unlisted=frozenset({"accepted", "offered"}),
)


def change_of(row: KnownTool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a change, each with its style: what was accepted, and what is said now."""
    yield f"{row.name}  {row.state}", "bold"
    before, after = _lines(row.accepted), _lines(row.offered)
    diff = difflib.unified_diff(before, after, lineterm="", n=2)
    for line in islice(diff, HEAD_LINES, None):
        style = {"+": "done", "-": "fail"}.get(line[:1], "dim")
        yield f"  {line}", style


def _lines(text: str | None) -> list[str]:
    """Return a definition as lines, a text of several lines as several.

    What cannot be seen is written out, the joiners of emoji and blanks at the end of a line too:
    a model reads them.
    """
    if not text:
        return []
    shown = escaped(orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode())
    broken = _LINE_BREAK.sub(lambda match: f"{match[1]}\n", shown)
    return [_BLANKS.sub(lambda match: "␠" * len(match[0]), each) for each in broken.split("\n")]
