"""Tables of fields: they hold all that a row has, each with a type, and every surface has them."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

import attrs
import click
import pytest

from cortex.cli.main import cli
from cortex.cli.options import Command
from cortex.domain.token import Role
from cortex.http.framework.openapi import document
from cortex.http.framework.principal import Principal
from cortex.http.framework.resource import document_of, schema_of_rows
from cortex.http.framework.shape import schema_of
from cortex.http.routes import ROUTES
from cortex.view.resource import Field, Resource, Shape
from cortex.view.resources import every, shapes

ALL = every()
BY_NOUN = pytest.mark.parametrize("resource", ALL, ids=[each.noun for each in ALL])
BY_NAME = pytest.mark.parametrize("shape", shapes(), ids=lambda each: each.name)


@BY_NAME
def test_a_shape_shows_each_attribute_of_its_row(shape: Shape[Any]) -> None:
    attributes = {field.name for field in attrs.fields(shape.row)}
    attributes |= {
        name
        for owner in shape.row.__mro__
        for name, each in vars(owner).items()
        if isinstance(each, property)
    }
    shown = {field.name for field in shape.fields}
    assert attributes - shown == shape.unlisted & attributes
    assert not shape.unlisted & shown
    assert shape.unlisted <= attributes, "an attribute that is gone is named as unlisted"


@BY_NAME
def test_fields_have_distinct_names_and_types_with_a_schema(shape: Shape[Any]) -> None:
    names = [field.name for field in shape.fields]
    assert len(names) == len(set(names))
    for field in shape.fields:
        assert schema_of(shape.kind_of(field), {}) is not None or field.is_for_people


@BY_NAME
def test_credentials_are_for_admins_at_any_depth(shape: Shape[Any]) -> None:
    for field in shape.fields:
        assert field.name != "credential" or field.role is Role.ADMIN
        hides = field.parts is None and any(map(_holds_credential, _classes(shape.kind_of(field))))
        assert not hides, f"{shape.name}.{field.name} needs `parts`, with a role for each"


def _classes(kind: Any) -> Iterator[type]:
    """Yield the attrs classes that a type is made of, at any depth."""
    for each in get_args(kind):
        yield from _classes(each)
    if isinstance(kind, type) and attrs.has(kind):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from _classes(hint)


def _holds_credential(kind: type) -> bool:
    return any(field.name == "credential" for field in attrs.fields(kind))


@attrs.frozen
class Part:
    """A row within a row."""

    name: str
    secret: str


@attrs.frozen
class Whole:
    """A row of rows."""

    parts: tuple[Part, ...]


def test_rows_within_a_row_are_shown_by_their_roles() -> None:
    parts = Shape(
        name="Part",
        doc="",
        row=Part,
        fields=(Field[Part](name="name"), Field[Part](name="secret", role=Role.ADMIN)),
    )
    fields = (Field[Whole](name="parts", parts=parts),)
    whole = Shape(name="Whole", doc="", row=Whole, fields=fields)
    row = Whole((Part("a", "s"), Part("b", "t")))
    viewer, admin = (
        Principal(name="ana", roles=frozenset({role})) for role in (Role.VIEWER, Role.ADMIN)
    )
    in_full = {"parts": [{"name": "a", "secret": "s"}, {"name": "b", "secret": "t"}]}
    hidden = {"parts": [{"name": "a", "secret": None}, {"name": "b", "secret": None}]}
    assert (document_of(whole, row, admin), document_of(whole, row, viewer)) == (in_full, hidden)
    assert whole.document(row) == in_full, "commands read as the database's user"
    assert fields[0].meaning == "`secret` only for admins"
    schema: dict[str, Any] = {}
    schema_of(schema_of_rows(whole), schema)
    assert {"type": "null"} in schema["Part"]["properties"]["secret"]["anyOf"]


@BY_NOUN
def test_the_http_api_lists_all_fields_of_a_resource(resource: Resource[Any]) -> None:
    api = document(ROUTES)
    rows = [each for path in api["paths"].values() for each in _rows(api, path, resource.noun)]
    wanted = {field.name for field in resource.fields if not field.is_for_people}
    assert wanted in [set(row["properties"]) for row in rows]


@BY_NOUN
def test_a_command_completes_the_columns_of_a_resource(resource: Resource[Any]) -> None:
    names = {field.name for field in resource.fields}
    assert any(names <= columns for columns in _completed())


@cache
def _completed() -> frozenset[frozenset[str]]:
    """Return the names of columns that each command completes."""
    return frozenset(
        frozenset(field.name for field in each.columns) for each in _commands(cli) if each.columns
    )


def _commands(group: click.Group) -> Iterator[Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _commands(found)
        elif isinstance(found, Command):
            yield found


def _rows(api: dict[str, Any], path: dict[str, Any], noun: str) -> Iterator[dict[str, Any]]:
    """Yield the schema of the rows that a path lists under this key."""
    answer = path.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    schema = answer.get("application/json", {}).get("schema", {})
    listed = _resolved(api, schema).get("properties", {}) if "$ref" in schema else {}
    if listed.get(noun, {}).get("type") == "array":
        yield _resolved(api, listed[noun]["items"])


def _resolved(api: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found
