"""Codes of pods: what distinguishes one code from another."""

from typing import Any

import pytest

from cortex.store.codes import Code

NUMBER = {"type": "integer"}


def schema(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"at": NUMBER}} | keywords


@pytest.mark.parametrize(
    "one, other",
    [
        (schema(default=1), schema(default=2)),
        (schema(oneOf=[{"default": 1} | NUMBER]), schema(oneOf=[{"default": 2} | NUMBER])),
        (schema(**{"$defs": {"A": {"title": "a"}}}), schema(**{"$defs": {"A": {"title": "b"}}})),
        (schema(items={"description": "a"}), schema(items={"description": "b"})),
    ],
    ids=["top", "list", "definition", "items"],
)
def test_code_digest_ignores_annotations_of_schemas(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = (Code(version="1", arguments={"digest": each}) for each in (one, other))
    assert first.digest == second.digest
    assert (
        Code(version="1", tools={"t": one}).digest == Code(version="1", tools={"t": other}).digest
    )


@pytest.mark.parametrize(
    "one, other",
    [
        (schema(properties={"title": NUMBER}), schema(properties={"description": NUMBER})),
        (schema(**{"$defs": {"title": NUMBER}}), schema(**{"$defs": {"default": NUMBER}})),
        (schema(enum=[{"title": 1}]), schema(enum=[{"title": 2}])),
        (schema(oneOf=[NUMBER]), schema(oneOf=[{"type": "string"}])),
        (schema(required=["at"]), schema(required=[])),
    ],
    ids=["property", "definition", "value", "list", "required"],
)
def test_a_code_differs_when_it_takes_other_arguments(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = (Code(version="1", arguments={"digest": each}) for each in (one, other))
    assert first.digest != second.digest
