"""Names that programs read: of the HTTP API, and in documents of the command line.

`python -m tests.support.generate frozen` adds new ones to `tests/frozen`; a line that vanishes
there breaks somebody's program.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cortex.http.framework.openapi import document
from cortex.http.routes import ROUTES
from cortex.view.resources import every

FOLDER: Final = Path(__file__).parent.parent / "frozen"
API: Final = FOLDER / "http_api.txt"
DOCUMENTS: Final = FOLDER / "documents.txt"


def api_lines(api: Mapping[str, Any] | None = None) -> list[str]:
    """Return a line per parameter and per key of a body or an answer, with its type."""
    api = api or document(ROUTES)
    lines = {line for path, each in api["paths"].items() for line in _of_path(api, path, each)}
    return sorted(lines)


def document_lines() -> list[str]:
    """Return a line per key of a resource's document."""
    return sorted(
        f"{each.noun} {field.name}"
        for each in every()
        for field in each.fields
        if not field.is_for_people
    )


def _of_path(api: Mapping[str, Any], path: str, methods: Mapping[str, Any]) -> Iterator[str]:
    for method, operation in methods.items():
        start = f"{method.upper()} {path}"
        yield start
        for each in operation["parameters"]:
            yield from _keys(api, each["schema"], f"{start} {each['in']} {each['name']}")
        if "requestBody" in operation:
            yield from _of_content(api, operation["requestBody"], f"{start} body")
        for status, answer in operation["responses"].items():
            yield from _of_content(api, answer, f"{start} {status}")


def _of_content(api: Mapping[str, Any], holder: Mapping[str, Any], start: str) -> Iterator[str]:
    yield start
    for media, content in holder.get("content", {}).items():
        if media == "application/json":
            yield from _keys(api, content.get("schema", {}), f"{start} ")


def _keys(
    api: Mapping[str, Any], schema: Mapping[str, Any], start: str, within: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the keys below a schema; a shape within itself ends there."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if name in within:
            return
        within = (*within, name)
        schema = api["components"]["schemas"][name]
    for each in schema.get("anyOf", ()):
        yield from _keys(api, each, start, within)
    if schema.get("type") == "array" and schema.get("items"):
        yield from _keys(api, schema["items"], f"{start}[]", within)
    for name, each in schema.get("properties", {}).items():
        yield from _keys(api, each, f"{start}.{name}", within)
    if not {"anyOf", "properties"} & schema.keys():
        yield f"{start} {_type(schema)}"


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("format", schema.get("type", "any"))
    return f"{kind} {'|'.join(map(str, schema['enum']))}" if "enum" in schema else str(kind)


def main() -> None:
    """Add what is new; a line that goes is deleted by hand, since that breaks programs."""
    for file, lines in ((API, api_lines()), (DOCUMENTS, document_lines())):
        kept = file.read_text("utf-8").splitlines()
        file.write_text("".join(f"{line}\n" for line in sorted({*kept, *lines})), "utf-8")
