"""Questions that a server asks during a call (elicitation), which people answer between two calls.

A call waits for minutes at most, a person takes hours, and pods die meanwhile. So the server
gets the answer that nobody answers now, which ends the call; a person is asked as for an approval,
and the call is made again with the answer at hand for when the server asks the same.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from cortex.agent.mcp import schemas
from cortex.domain.canonical import canonical, digest
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.domain.redaction import storable

MESSAGE_CHARS_MAX: Final = 400
SCHEMA_BYTES_MAX: Final = 16_384
_EMPTY: Final[Mapping[str, Any]] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
}


@attrs.frozen(kw_only=True)
class Question:
    """A question of a server, with the form of its answer."""

    server: str
    message: str
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, server: str, params: Any) -> Self | None:
        """Read the library's parameters; None if a person cannot be asked so."""
        schema = getattr(params, "requested_schema", None)
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return None
        made = cls(server=server, message=storable(params.message), schema=schema)
        try:
            is_small = len(canonical(made.to_json()).encode()) <= SCHEMA_BYTES_MAX
        except InvalidValueError:
            return None
        return made if is_small and len(made.message) <= MESSAGE_CHARS_MAX else None

    @property
    def digest(self) -> str:
        """SHA-256 of the question, in hexadecimal digits: equal questions have equal ones."""
        return digest(canonical(self.to_json())).hex()

    @property
    def blank(self) -> dict[str, Any]:
        """An answer to begin with, which a person fills in."""
        properties = self.schema.get("properties")
        fields = properties if isinstance(properties, Mapping) else {}
        return {name: _blank(each) for name, each in fields.items()}

    @property
    def form(self) -> dict[str, Any]:
        """The schema by which people edit their answer."""
        form = schemas.editable(self.schema)
        return {"properties": {}, **form, "additionalProperties": False}

    def to_json(self) -> dict[str, Any]:
        return {"server": self.server, "message": self.message, "schema": dict(self.schema)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_json` returned."""
        return cls(**stored)


class InputRequiredError(RejectedError):
    """A server asked a person something, and got the answer that nobody is there."""

    code = "input_required"

    def __init__(self, tool: str, question: Question) -> None:
        super().__init__(
            f"tool {tool!r} asks: {question.message}",
            hint="give it what it needs as arguments, or let an agent call it: it asks a person",
        )
        self.question = question


@attrs.define(eq=False)
class OpenCall:
    """A call under way: the answers at hand, and what was asked besides."""

    answers: Mapping[str, Any]
    """Answers by the digests of their questions."""
    asked: list[Question] = attrs.field(factory=list)


def _blank(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return None
    choices = schema.get("enum")
    if "default" in schema:
        return schema["default"]
    if isinstance(choices, list) and choices:
        return choices[0]
    return _EMPTY.get(str(schema.get("type")))
