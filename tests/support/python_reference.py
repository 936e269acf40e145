"""Generates docs/reference/python.md: what `cortex` and `cortex.testing` export, from docstrings.

griffe reads the source, so attributes keep their docstrings and overloads their signatures; these
are shown as they are written. Each name stands in one section; an example of the page uses it, and
each of its methods.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import griffe
from attrs import frozen

import cortex
import cortex.testing

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "python.md"
EXAMPLES: Final = ROOT / "docs" / "reference" / "examples"
TEXT: Final = """\
What a program imports from `cortex`, and its tests from `cortex.testing`; the
[guides](../guides/how-do-i.md) say how it works together. Each section ends with programs that
the gate runs. Signatures are those of the source."""


@frozen
class Section:
    title: str
    names: tuple[str, ...]
    examples: tuple[str, ...]


SECTIONS: Final = (
    Section(
        "Jobs",
        (
            "job",
            "Concurrency",
            "Context",
            "File",
            "ModelOptions",
            "Rate",
            "Retry",
            "resource",
            "Singleton",
            "Debounce",
            "Throttle",
        ),
        ("digest", "chores", "sale", "pages", "reorder", "shop", "album"),
    ),
    Section(
        "Tools and effects",
        ("tool", "ToolContext", "Invocation", "Applied", "NotApplied", "Unknown"),
        ("bank",),
    ),
    Section("Messages", ("handler", "Message"), ("orders",)),
    Section(
        "Clients",
        ("Client", "SyncClient", "Handle"),
        ("submit", "script", "office", "ship", "follow"),
    ),
    Section(
        "Errors",
        (
            "CortexError",
            "RejectedError",
            "TransientError",
            "CapReachedError",
            "ChildFailedError",
            "TimedOutError",
            "NotFoundError",
            "UnavailableError",
            "DeniedError",
            "ApprovalExpiredError",
            "InvalidSignalError",
            "JobFailedError",
            "JobCancelledError",
        ),
        ("offer",),
    ),
    Section(
        "Tests", ("Cortex", "agent", "Run", "StuckError", "PromiseBrokenError"), ("test_offer",)
    ),
)
RETURNED: Final = {
    "JobType": "cortex.durable.registry",
    "Child": "cortex.durable.children",
    "ChildMap": "cortex.durable.children",
    "Tool": "cortex.agent.tools.tool",
    "ModelResponse": "cortex.domain.model",
    "Decision": "cortex.durable.gates",
    "Backoff": "cortex.domain.backoff",
    "EffectWords": "cortex.agent.tools.effect_rule",
    "Jobs": "cortex.client.client",
    "Approvals": "cortex.client.client",
    "DeadLetters": "cortex.client.client",
    "Sql": "cortex.client.sql",
    "SyncHandle": "cortex.client.handles",
    "Options": "cortex.client.submission",
    "Statement": "cortex.client.statements",
    "JobEvent": "cortex.domain.job_feed",
    "Winner": "cortex.durable.first_of",
    "State": "cortex.durable.published",
    "JobShows": "cortex.store.published",
    "JobProgress": "cortex.domain.published",
    "Model": "cortex.testing.model",
    "Clock": "cortex.testing.clock",
    "Effect": "cortex.testing.outcome",
    "Line": "cortex.testing.outcome",
}
"""Types that the exported ones take and return; programs need not import them."""
INTERNAL: Final = frozenset(
    {
        *(f"Context.{each}" for each in ("services", "agent_spec", "limits", "caller", "clocked")),
        *(
            f"Context.{each}"
            for each in ("group", "was_recorded", "for_agent", "ask", "generate", "planned")
        ),
        "Context.tool_as_stored",
        "Context.mcp_tools",
        "Context.approve_or_end",
        *(f"ToolContext.{each}" for each in ("confiner", "has_network", "writes_folder", "notify")),
        "ToolContext.secrets",
        *(f"Message.{each}" for each in ("seq", "claim", "document")),
        *(f"JobType.{each}" for each in ("parameters", "required", "requested", "result")),
        *(
            f"JobType.{each}"
            for each in ("check", "check_payload", "arguments", "handler", "policy")
        ),
        *(f"Tool.{each}" for each in ("arguments", "result", "takes_context", "requested")),
        *(f"Tool.{each}" for each in ("declared", "invoke", "parse", "breaker_name", "gate")),
        *(f"Tool.{each}" for each in ("effect_of", "canonical", "call", "breaker")),
        *(f"ModelResponse.{each}" for each in ("is_cut", "as_message", "to_json", "from_json")),
        *(f"Decision.{each}" for each in ("to_json", "from_json")),
        *(f"Backoff.{each}" for each in ("longest_s", "pause_s")),
        *(f"Options.{each}" for each in ("of", "check")),
        "JobEvent.position",
        "ModelOptions.to_json",
        "Context.keep_files",
        *(f"File.{each}" for each in ("content", "stored", "of_block")),
        *(f"Model.{each}" for each in ("begin", "answer_after")),
    }
)
"""Public to the other rooms of Cortex, and of no use to a program."""

_DOCS: Final = re.compile(r"docs/([\w/-]+\.md)")


@cache
def _source(module: str) -> list[str]:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").read_text("utf-8").splitlines()


@cache
def _module(name: str) -> griffe.Module:
    path = (ROOT / name.replace(".", "/")).with_suffix(".py")
    return griffe.visit(name, filepath=path, code=path.read_text("utf-8"))


def page(note: str) -> str:
    """Return the text of the page; raise `LookupError` for a name without section or example."""
    _check()
    parts = ["# Python", note, TEXT]
    parts.append("\n".join(["| section | names |", "|---|---|", *map(_row, SECTIONS)]))
    for section in SECTIONS:
        parts += [f"## {section.title}"]
        for name in section.names:
            parts += _object(name, _home(name))
        for example in section.examples:
            code = (EXAMPLES / f"{example}.py").read_text("utf-8")
            parts += [f"### Example: {example}", f"```python\n# {example}.py\n{code}```"]
    parts += ["## What these take and return"]
    for name, home in RETURNED.items():
        parts += _object(name, home)
    return "\n\n".join(parts) + "\n"


def _home(name: str) -> str:
    """Return the module that defines an exported name."""
    return cortex._HOMES.get(name) or cortex.testing._HOMES[name]


def _row(section: Section) -> str:
    names = " ".join(f"[`{each}`](#{each.lower()})" for each in section.names)
    return f"| [{section.title}](#{section.title.lower().replace(' ', '-')}) | {names} |"


def _check() -> None:
    placed = [name for section in SECTIONS for name in section.names]
    if odd := sorted(set(placed) ^ {*cortex.__all__, *cortex.testing.__all__}):
        raise LookupError(f"cortex exports {odd}, or has ceased to: see {__name__}.SECTIONS")
    used = set(uses(each for part in SECTIONS for each in part.examples))
    methods = {
        f"{name}.{each}": each
        for name in placed
        for each in _methods(name, _home(name))
        if not each.startswith("_")
    }
    unused = [each for each in placed if each not in used]
    unused += [shown for shown, each in methods.items() if f".{each}" not in used]
    if unused:
        raise LookupError(f"no example uses {', '.join(unused)}: see {EXAMPLES}")


def uses(examples: Iterable[str]) -> Iterator[str]:
    """Yield the names that these programs use, those of attributes as `.name`; no imports."""
    for example in examples:
        for node in ast.walk(ast.parse((EXAMPLES / f"{example}.py").read_text("utf-8"))):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield f".{node.attr}"


def _methods(name: str, home: str) -> list[str]:
    found = _module(home)[name]
    if isinstance(found, griffe.Function):
        return []
    return [key for key, each in _members(found).items() if isinstance(each, griffe.Function)]


def _members(owner: griffe.Class) -> dict[str, griffe.Object | griffe.Alias]:
    """Return what a program sees of a class."""
    return {
        key: each
        for key, each in owner.members.items()
        if _is_public(key) and f"{owner.name}.{key}" not in INTERNAL
    }


def _object(name: str, home: str) -> Iterator[str]:
    yield f"### `{name}`"
    found = _module(home)[name]
    if isinstance(found, griffe.Function):
        yield from _function(found)
        return
    bases = ", ".join(str(each) for each in found.bases if not str(each).startswith("_"))
    yield f"```pyi\nclass {name}{f'({bases})' if bases else ''}\n```"
    yield from _docstring(found)
    members = _members(found)
    rows = [
        f"| `{key}` | `{kind}` | {_first_paragraph(each)} |"
        for key, each in members.items()
        if isinstance(each, griffe.Attribute) and (kind := _type(found, each))
    ]
    if rows:
        yield "\n".join(["| attribute | type | meaning |", "|---|---|---|", *rows])
    for key, each in members.items():
        if isinstance(each, griffe.Function) and (key != "__init__" or _is_called(found, each)):
            yield f"#### `{name}.{key}`" if key != "__init__" else f"#### `{name}(…)`"
            yield from _function(each)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def _is_called(owner: griffe.Class, init: griffe.Function) -> bool:
    """Return whether programs call it: an error's, and one whose docstring describes it."""
    text = init.docstring.value if init.docstring else ""
    is_error = owner.name.endswith("Error")
    return is_error or (bool(text) and not text.startswith("Not called"))


def _type(owner: griffe.Class, each: griffe.Attribute) -> str | None:
    annotation = each.annotation
    if annotation is None and isinstance(each.value, griffe.ExprCall):  # self.sql = Sql(…)
        annotation = each.value.function
    if annotation is None and isinstance(each.value, griffe.ExprName):  # self.by = by
        init = owner.members["__init__"]
        if isinstance(init, griffe.Function) and str(each.value) in init.parameters:
            annotation = init.parameters[str(each.value)].annotation
    if annotation is None:
        return None
    text = str(annotation)
    if text.startswith("ClassVar["):
        text = text.removeprefix("ClassVar[").removesuffix("]")
    return text.replace("|", r"\|")


def _first_paragraph(each: griffe.Attribute) -> str:
    text = each.docstring.value.split("\n\n")[0] if each.docstring else ""
    return " ".join(text.split()).replace("|", r"\|")


def _function(function: griffe.Function) -> Iterator[str]:
    shown = function.overloads or [function]
    yield "```pyi\n" + "\n".join(_signature(each) for each in shown) + "\n```"
    yield from _docstring(function)


def _signature(function: griffe.Function) -> str:
    """Return the signature as it stands in the source, with its decorators."""
    lines = _source(function.module.path)[(function.lineno or 1) - 1 : function.endlineno]
    text = textwrap.dedent("\n".join(lines))
    node: Any = ast.parse(text).body[0]
    head = text.splitlines()[: node.returns.end_lineno if node.returns else node.body[0].lineno - 1]
    kept = [re.sub(r"  # noqa: .*", "", line) for line in head]
    return "\n".join(kept).removesuffix(" ...").removesuffix(":")


def _docstring(found: griffe.Object) -> Iterator[str]:
    if found.docstring is None:
        return
    for section in found.docstring.parse("google", warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            yield _DOCS.sub(r"[\g<0>](../\1)", section.value)
        elif isinstance(section, griffe.DocstringSectionRaises):
            rows = (
                f"- `{each.annotation}`: {' '.join(each.description.split())}"
                for each in section.value
            )
            yield "\n".join(["Raises:", "", *rows])
        else:
            raise NotImplementedError(f"{found.path}: a section {section.kind.value} is not shown")
