"""Edited arguments fit their schema, keep their types, and are one text for one value."""

from typing import Any

import pytest

from cortex.domain import redaction
from cortex.domain.argument_check import EDITED_BYTES_MAX, edited_arguments
from cortex.domain.errors import InvalidValueError, RejectedError
from tests.support.knowing import forget_secrets

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["to"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{ "to": "a",\n "amount": 1.0 }', '{"amount":1.0,"to":"a"}'),
        ('{"to": "a", "amount": 1}', '{"amount":1,"to":"a"}'),
        ('{"to": "\\u202e"}', '{"to":"\u202e"}'),
    ],
)
def test_fitting_arguments_are_made_canonical(text: str, expected: str) -> None:
    assert edited_arguments(text, schema=SCHEMA) == expected


@pytest.mark.parametrize(
    "text, output",
    [
        ('{"to": 3, "amount": "4"}', "do not fit: to must be text, got 3; amount must be a finite"),
        ("{}", "to is missing"),
        ('{"to": "a", "cc": "b"}', "cc is unknown"),
        ("[]", "must be an object"),
        ('"to"', "must be an object"),
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ('{"to": "a", "to": "b"}', "the key 'to' twice"),
        ('{"to": "a", "amount": NaN}', "NaN|nan"),
        ('{"to": "\\u0000"}', "NUL"),
        ('{"to": "' + "x" * EDITED_BYTES_MAX + '"}', "more than"),
    ],
)
def test_unfitting_arguments_are_refused(text: str, output: str) -> None:
    with pytest.raises(InvalidValueError, match=output):
        edited_arguments(text, schema=SCHEMA)


def test_arguments_without_a_schema_cannot_be_edited() -> None:
    with pytest.raises(RejectedError, match="cannot be edited"):
        edited_arguments("{}", schema=None)


def test_a_secret_is_refused_and_not_replaced_by_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person wrote is what runs, or nothing does."""
    forget_secrets(monkeypatch)
    redaction.register("TOKEN", "open sesame!")
    with pytest.raises(InvalidValueError, match="contain secret TOKEN"):
        edited_arguments('{"to": "open sesame!"}', schema=SCHEMA)
