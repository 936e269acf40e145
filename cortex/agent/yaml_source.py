"""YAML that a person wrote: plain values, and the line of each value.

Stricter than YAML itself: a repeated key is an error, not a silent loss of the first, and the
expansion of a small file (aliases of aliases, nesting) is bounded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import yaml

from cortex.domain.errors import UsageError
from cortex.durable.structuring import Problem, show

SIZE_MAX_BYTES = 262_144
DEPTH_MAX = 32
# Aliases count as often as they are used: ten lines of them can stand for a billion values.
VALUES_MAX = 10_000
COLLECTION_TAGS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

Path = tuple[str | int, ...]


class Named(Protocol):
    """What a document defines."""

    @property
    def name(self) -> str: ...


Definition = TypeVar("Definition", bound=Named)


@attrs.frozen
class Document:
    """One document of a file."""

    source: str
    value: object
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int:
        """The line (from 1) of `path`, or of what encloses it if it does not exist."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def first(self, problems: Sequence[Problem]) -> Problem:
        """Return the problem that stands highest in the file: the first one that a reader meets."""
        return min(problems, key=lambda each: self.line(each.path))

    def refused(self, problems: Sequence[Problem], *, noun: str) -> UsageError:
        """Return the error of a definition with these problems, which names the first of them."""
        problem = self.first(problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        message = f"{problem.field or f'the {noun}'} {problem.reason}"
        return UsageError(f"{self.source}:{self.line(problem.path)}: {message}{more}")


def parse_definitions(
    text: str, source: str, *, parse: Callable[[Document], Definition], noun: str, fields: str
) -> list[Definition]:
    """Return what the documents of `text` define, at least one, under different names.

    `noun` is what one is called, `fields` are those that make one. Raises `UsageError`, also for a
    name that is taken.
    """
    made: list[Definition] = []
    for document in parse_documents(text, source):
        one = parse(document)
        if any(one.name == other.name for other in made):
            article = "an" if noun[0] in "aeiou" else "a"
            reason = f"{one.name!r} is taken by {article} {noun} further up"
            raise document.refused((Problem(("name",), reason),), noun=noun)
        made.append(one)
    if not made:
        raise UsageError(f"{source}: no {noun} in it", hint=f"{fields} make one")
    return made


def parse_documents(text: str, source: str) -> list[Document]:
    """Return the non-empty documents of `text`; raises `UsageError` with file and line."""
    size = len(text.encode(errors="surrogatepass"))
    if size > SIZE_MAX_BYTES:
        raise UsageError(f"{source}: {size} bytes, at most {SIZE_MAX_BYTES}")
    try:
        return list(_documents(text, source))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UsageError(f"{source}:{line}: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{source}:{line}: a character that YAML forbids") from error


class _Loader(yaml.SafeLoader):
    """Composes nodes no deeper than `DEPTH_MAX`: the composer recurses for each level."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise yaml.composer.ComposerError(
                problem=f"nested deeper than {DEPTH_MAX} levels", problem_mark=self.get_mark()
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _documents(text: str, source: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            reading = _Reading(loader, source)
            node = loader.get_node()
            value = reading.value(node, ()) if node is not None else None
            if value is not None:
                yield Document(source=source, value=value, lines=reading.lines)
    finally:
        loader.dispose()


class _Reading:
    """Converts the nodes of one document to values and remembers their lines."""

    def __init__(self, loader: _Loader, source: str) -> None:
        self._loader = loader
        self._source = source
        self.lines: dict[Path, int] = {}

    def value(self, node: yaml.Node, path: Path, *, line: int | None = None) -> object:
        """Convert a node; `line` is the key's, since a reader looks there, not at an anchor."""
        line = node.start_mark.line + 1 if line is None else line
        self.lines[path] = line
        if len(self.lines) > VALUES_MAX:
            raise UsageError(f"{self._source}:{line}: more than {VALUES_MAX} values")
        if len(path) > DEPTH_MAX:
            raise UsageError(f"{self._source}:{line}: nested deeper than {DEPTH_MAX} levels")
        if isinstance(node, yaml.CollectionNode) and node.tag not in COLLECTION_TAGS:
            raise UsageError(f"{self._source}:{line}: the tag {node.tag!r} is not allowed")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise UsageError(f"{self._source}:{line}: a key that is not text")
            if key in values:
                first = self.lines[(*path, key)]
                raise UsageError(
                    f"{self._source}:{line}: {key} is given twice, first on line {first}"
                )
            values[key] = self.value(value_node, (*path, key), line=line)
        return values

    def _scalar(self, node: yaml.Node, line: int) -> object:
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # such as the date 2025-02-30
            raise UsageError(f"{self._source}:{line}: {show(node.value)}: {error}") from error
