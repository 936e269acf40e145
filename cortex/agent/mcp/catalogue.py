"""What a server says about its tools, bounded and checked before a model sees it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import attrs

from cortex.agent.mcp.names import dotted, model_name
from cortex.agent.mcp.terms import TOOL, McpServer
from cortex.domain.canonical import canonical, digest
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.redaction import clean_text, storable

TOOLS_MAX: Final = 256
"""Tools of one server, after the agent's choice."""
LISTED_MAX: Final = 4_096
"""Tools of one server, before that choice."""
LISTED_BYTES_MAX: Final = 16 << 20
"""Bytes of the tools of one server, which all jobs that share its session keep in memory."""
_ALIKE: Final = str.maketrans("i10", "llo")
"""People who approve a call, and rules, name tools by what they read."""
TOOL_BYTES_MAX: Final = 65_536
ALL_BYTES_MAX: Final = 524_288


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """A tool as its server describes it: the text and the schemas that models and people rely on.

    The hints are the server's own word: only the agent's specification says whether to believe it.
    """

    server: str
    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    read_only: bool = False
    """The hint that it changes nothing."""
    idempotent: bool = False
    """The hint that equal calls count once."""

    @property
    def dotted(self) -> str:
        """The name for people, records and rules."""
        return dotted(self.server, self.name)

    @property
    def model_name(self) -> str:
        return model_name(self.server, self.name)

    @property
    def digest(self) -> str:
        """Of all that is recorded, in hexadecimal digits."""
        return digest(canonical(self.to_json())).hex()

    def to_json(self) -> dict[str, Any]:
        """Return the recorded form, without what is not set."""
        stored = attrs.asdict(
            self, filter=lambda _, value: value is not None and value is not False
        )
        return {**stored, "input_schema": dict(self.input_schema)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_json` returned."""
        return cls(**stored)

    def offer(self) -> dict[str, Any]:
        """Describe it for a model."""
        return {
            "name": self.model_name,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }


def chosen(name: str, terms: McpServer, listed: Iterable[Any]) -> list[ToolDefinition]:
    """Return the tools that the agent gets of a server, by name, from the library's own `Tool`s.

    Raises `RejectedError` that names the server and the tool: for one that cannot be described to a
    model, two of one name or look, or too many of them.
    """
    found = [each for each in listed if terms.has(each.name)]
    where = f"MCP server {name!r}"
    out = "name the tools that the agent needs in `tools`"
    twice = next((tool for tool, n in Counter(each.name for each in found).items() if n > 1), None)
    if twice is not None:
        raise RejectedError(f"{where} offers two tools named {twice!r:.80}", hint=_leave_out(twice))
    looks: dict[str, str] = {}
    for each in found:
        other = looks.setdefault(each.name.casefold().translate(_ALIKE), each.name)
        if other != each.name:
            message = f"{where} offers {other!r:.80} and {each.name!r:.80}, which look alike"
            raise RejectedError(message, hint=_leave_out(each.name))
    if len(found) > TOOLS_MAX:
        raise RejectedError(f"{where} offers {len(found)} tools, at most {TOOLS_MAX}", hint=out)
    made = sorted((definition_of(name, each) for each in found), key=lambda each: each.name)
    if sum(len(canonical(each.to_json()).encode()) for each in made) > ALL_BYTES_MAX:
        message = f"{where} describes its tools with over {ALL_BYTES_MAX >> 10} KiB"
        raise RejectedError(message, hint=out)
    names = {each.name for each in made}
    if absent := [each for each in terms.named if each not in names]:
        raise RejectedError(
            f"{where} has no tool {absent[0]!r}; it has {_some(each.name for each in listed)}",
            hint="change `tools` in the agent's specification",
        )
    return made


def refuse_taken(definitions: Iterable[ToolDefinition], own: Iterable[str]) -> None:
    """Raise `RejectedError` for a tool whose name for models is taken by another tool."""
    taken = {each: f"the agent's tool {each!r}" for each in own}
    for each in definitions:
        if each.model_name in taken:
            raise RejectedError(
                f"MCP server {each.server!r}: tool {each.name!r} is {each.model_name!r} to models, "
                f"and so is {taken[each.model_name]}",
                hint=_leave_out(each.name),
            )
        taken[each.model_name] = f"tool {each.dotted!r}"


def definition_of(server: str, tool: Any) -> ToolDefinition:
    """Return what a server says about a tool, from the library's own `Tool`.

    Raises `RejectedError` for one that cannot be described to a model.
    """
    where = f"MCP server {server!r}: tool {clean_text(tool.name)!r:.140}"
    if not TOOL.fullmatch(tool.name):
        raise RejectedError(f"{where} has no usable name", hint=_leave_out(tool.name))
    schema, hints = tool.input_schema, tool.annotations
    if not isinstance(schema, dict) or schema.get("type") != "object":
        message = f"{where} has an input schema that is not one of an object"
        raise RejectedError(message, hint=_leave_out(tool.name))
    made = ToolDefinition(
        server=server,
        name=tool.name,
        description=storable(tool.description or tool.title or tool.name),
        input_schema=schema,
        output_schema=tool.output_schema,
        read_only=bool(hints is not None and hints.read_only_hint),
        idempotent=bool(hints is not None and hints.idempotent_hint),
    )
    try:
        size = len(canonical(made.to_json(), what=where).encode())
    except InvalidValueError as error:
        raise RejectedError(error.message, hint=_leave_out(tool.name)) from error
    if size > TOOL_BYTES_MAX:
        message = f"{where} is described with {size:,} bytes, at most {TOOL_BYTES_MAX:,}"
        raise RejectedError(message, hint=_leave_out(tool.name))
    return made


def _leave_out(tool: str) -> str:
    return f"leave {clean_text(tool)!r:.80} out: name those that the agent needs in `tools`"


def _some(names: Iterable[str], most: int = 10) -> str:
    listed = sorted(clean_text(each)[:80] for each in names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more
