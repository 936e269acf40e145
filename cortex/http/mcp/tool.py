"""A tool: a route of the HTTP API, as an assistant sees and calls it.

Names, limits and descriptions of its arguments are those of the route's parameters, query and body.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, get_type_hints
from urllib.parse import quote
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.idempotency import KEY_LENGTH_MAX, checked_key
from cortex.domain.token import Role
from cortex.durable.json_schema import Schema
from cortex.http.framework.route import Method, Route
from cortex.http.framework.shape import fields_of, query_schema, schema_of
from cortex.http.mcp.allow import Allow
from cortex.http.mcp.asking import Answer, Ask

KEY: Final = "idempotency_key"
WORD_MAX: Final = 80
"""Characters of a caller's word in an error."""
WHOLE_ID: Final = "give the whole id, as lists show it"
ID_LENGTH: Final = 36
"""With its dashes: `UUID` takes braces and more."""
_REFERENCE: Final = "#/components/schemas/"


class Call(Protocol):
    """One call of a tool, with its caller."""

    async def ask(self, ask: Ask) -> Answer:
        """Ask the API as the caller."""
        ...

    async def progress(self, done: float, total: float, message: str) -> None:
        """Report progress, if the caller wants it."""
        ...

    async def typed(self, question: str, *, label: str) -> str | None:
        """Ask the person at the assistant, past the model; None: declined, or gave no answer.

        Raises `ForbiddenError` if the assistant cannot ask.
        """
        ...


Handle = Callable[["Tool", Call, Mapping[str, Any]], Awaitable[Answer]]


async def ask_route(tool: "Tool", call: Call, arguments: Mapping[str, Any]) -> Answer:
    """Ask the route of the tool, and nothing else."""
    return await call.ask(tool.asked(arguments))


@attrs.frozen(kw_only=True)
class Tool:
    """One tool."""

    name: str
    title: str
    route: Route
    description: str
    """For the model: what it returns, and when to use it."""
    allow: Allow | None = None
    """What must be allowed to have it; None: it only reads."""
    handle: Handle = ask_route
    leaves_out: frozenset[str] = frozenset()
    """Fields of the route that an assistant does not set."""
    more: Mapping[str, Schema] = attrs.field(factory=dict)
    """Arguments that `handle` takes beside those of the route, all optional."""
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    """In place of the route's defaults."""
    hides: frozenset[str] = frozenset()
    """Fields of the document and of its rows that it does not show."""
    is_exact: bool = False
    """Shows no text cut: what people decide about."""
    waits: bool = False
    """May take minutes, in which it needs little."""
    is_destructive: bool = False
    is_idempotent: bool = False
    """Repeated with the same arguments it changes nothing more."""

    @property
    def role(self) -> Role:
        """The right that its route needs."""
        if not isinstance(self.route.role, Role):
            raise TypeError(f"{self.name} is made of a route for everyone")
        return self.route.role

    def schema(self) -> Schema:
        """Return the JSON Schema of the arguments."""
        components: dict[str, Schema] = {}
        properties: dict[str, Schema] = {}
        required = list(self.route.param_names)
        for name in self.route.param_names:
            properties[name] = dict(self.route.params.get(name, {"type": "string"}))
        for shape in (self.route.query, self.route.body):
            if shape is None:
                continue
            hints = get_type_hints(shape)
            for name, field in fields_of(shape, components).items():
                if name in self.leaves_out:
                    continue
                plain = {key: value for key, value in field.schema.items() if key != "anyOf"}
                properties[name] = schema_of(query_schema(hints[name]), components) | plain
                if field.is_required:
                    required.append(name)
        for name, value in self.defaults.items():
            properties[name]["default"] = value
        properties |= {name: dict(schema) for name, schema in self.more.items()}
        if self.route.takes_key:
            properties[KEY] = _KEY_SCHEMA
        made: Schema = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        if components:
            made["$defs"] = {
                name: {key: value for key, value in each.items() if key != "x-shape"}
                for name, each in components.items()
            }
        relocated: Schema = _relocated(made)
        return relocated

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `UsageError` for an argument that it does not have, or for a missing one."""
        schema = self.schema()
        known = schema["properties"]
        for name in arguments:
            if name not in known:
                raise UsageError(
                    f"{self.name} has no argument {name[:WORD_MAX]!a}",
                    hint=f"it has: {', '.join(sorted(known)) or 'none'}",
                )
        missing = [name for name in schema["required"] if arguments.get(name) is None]
        if missing:
            raise UsageError(f"{self.name} needs {' and '.join(missing)}")

    def asked(self, arguments: Mapping[str, Any]) -> Ask:
        """Return the request to the route. Raises `UsageError` for a value of a wrong kind."""
        given = {name: value for name, value in arguments.items() if value is not None}
        given = {**self.defaults, **given}
        key = given.pop(KEY, None)
        if key is not None:
            if not isinstance(key, str):
                raise UsageError(f"{KEY} must be text, got {_brief(key)}")
            checked_key(key)  # a header would hold `?` for each letter that it cannot
        path = self.route.path
        for name in self.route.param_names:
            path = path.replace(f"{{{name}}}", self._in_path(name, given.pop(name)))
        given = {name: value for name, value in given.items() if name not in self.more}
        if self.route.method is Method.GET:
            self._refuse_lists(given)
            return Ask(method=Method.GET, path=path, query=tuple(_pairs(given)))
        return Ask(method=self.route.method, path=path, body=given, key=key)

    def _in_path(self, name: str, value: Any) -> str:
        word = _word(name, value)
        if self.route.params.get(name, {}).get("format") == "uuid" and not _is_id(word):
            raise UsageError(f"{name} {_brief(word)} is not an id", hint=WHOLE_ID)
        return quote(word, safe="")

    def _refuse_lists(self, given: Mapping[str, Any]) -> None:
        """Raise `UsageError` for a list that a query would take for one value, or for none."""
        known = self.schema()["properties"]
        for name, value in given.items():
            if isinstance(value, list) and known[name].get("type") != "array":
                raise UsageError(f"{name} must be one value, got {_brief(value)}")


_KEY_SCHEMA: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": KEY_LENGTH_MAX,
    "pattern": "^[!-~]+$",
    "description": "a new random text for each change that you intend: repeat the call with the "
    "same one after an error, and it is made once",
}


def _relocated(value: Any) -> Any:
    """Return a schema whose references lead to its own definitions."""
    if isinstance(value, dict):
        return {
            key: each.replace(_REFERENCE, "#/$defs/")
            if key == "$ref" and isinstance(each, str)
            else _relocated(each)
            for key, each in value.items()
        }
    return [_relocated(each) for each in value] if isinstance(value, list) else value


def _pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, _word(name, each))
        for name, value in given.items()
        for each in (value if isinstance(value, list) else [value])
    ]


def _word(name: str, value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            if not value.isascii():
                _refuse_surrogates(name, value)
            return value
        case int() | float():
            return str(value)
        case _:
            raise UsageError(f"{name} must be text or a number, got {_brief(value)}")


def _is_id(word: str) -> bool:
    try:
        UUID(word)
    except ValueError:
        return False
    return len(word) == ID_LENGTH


def _refuse_surrogates(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is not UTF-8 text") from error


def _brief(value: Any) -> str:
    return ascii(value)[:WORD_MAX]
