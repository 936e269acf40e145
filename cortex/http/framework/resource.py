"""Answers about resources: schemas made of their fields, and lists, whole or by name."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

import attrs
import orjson
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.principal import NOBODY, Principal
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import text
from cortex.http.framework.tenancy import Tenancy
from cortex.view.resource import Field, NamedResource, Resource, Row, Shape, WholeResource

NAME_MAX: Final = 400

Described = tuple[Any, str]
"""A type, and what a value of it means."""


@cache
def schema_of_rows(shape: Shape[Any], **more: Described) -> type:
    """Return the attrs class of a row's document, and of what stands beside its fields."""
    fields = {
        each.name: (_kind(shape, each), each.meaning)
        for each in shape.fields
        if not each.is_for_people
    }
    return _class(shape.name, shape.doc, fields | more)


def schema_of_page(resource: Resource[Any], *, doc: str, **more: Described) -> type:
    """Return the attrs class of a page of rows, and of what stands beside them."""
    rows: Described = (_list_of(schema_of_rows(resource)), "")
    return _class(resource.noun.title(), doc, {resource.noun: rows, **more})


def schema_of_document(name: str, *, doc: str, **fields: Described) -> type:
    """Return the attrs class of an answer that holds rows and more."""
    return _class(name, doc, fields)


def page_of(
    resource: Resource[Row], rows: Sequence[Row], caller: Principal = NOBODY, /, **more: object
) -> dict[str, object]:
    """Return a page of rows as its document; see `document_of`."""
    return {resource.noun: [document_of(resource, row, caller) for row in rows], **more}


def document_of(shape: Shape[Row], row: Row, caller: Principal = NOBODY) -> dict[str, object]:
    """Return a row as its document; JSON texts stay as they are.

    Fields that need more than the right to read are null for a caller who lacks it.
    """
    return {each.name: _value(each, row, caller) for each in shape.fields if not each.is_for_people}


def _value(field: Field[Row], row: Row, caller: Principal) -> object:
    if field.role is not Role.VIEWER and not caller.may(field.role):
        return None
    if field.parts is not None:
        return [document_of(field.parts, each, caller) for each in field.value(row)]
    return field.exact(row) if field.json is None else orjson.Fragment(field.json(row))


def _kind(shape: Shape[Any], field: Field[Any]) -> Any:
    kind = shape.kind_of(field) if field.parts is None else _list_of(schema_of_rows(field.parts))
    return kind if field.role is Role.VIEWER else kind | None


def _list_of(kind: type) -> Any:
    return list.__class_getitem__(kind)


def _class(name: str, doc: str, fields: Mapping[str, Described]) -> type:
    made = {
        name: attrs.field(type=kind, metadata={"schema": {"description": doc} if doc else {}})
        for name, (kind, doc) in fields.items()
    }
    return attrs.make_class(name, made, kw_only=True, class_body={"__doc__": doc})


# --- lists

NOW: Final[Described] = (
    datetime | None,
    "the database's time, for comparison; null without rows",
)


def list_all(
    resource: WholeResource[Any], *, summary: str, tenancy: Tenancy, role: Role = Role.VIEWER
) -> Route:
    """Return the route that lists a resource whole, with the database's time if rows have it."""
    has_now = "now" in attrs.fields_dict(resource.row)

    async def handle(_: CheckedRequest[None, None], api: Api) -> Response:
        rows = await api.port(resource.page)
        more = {"now": rows[0].now if rows else None} if has_now else {}
        return answer(page_of(resource, rows, **more))

    handle.__name__ = f"list_{resource.noun}"
    more: dict[str, Described] = {"now": NOW} if has_now else {}
    return Route(
        method=Method.GET,
        path=f"/v1/{resource.noun}",
        handle=handle,
        role=role,
        tenancy=tenancy,
        summary=summary,
        answers={200: schema_of_page(resource, doc=f"All {resource.noun}.", **more)},
    )


@attrs.frozen(kw_only=True)
class NamesQuery:
    """Selects rows by name."""

    after: str = text(doc="`next_after` of the previous page", length_max=NAME_MAX, default="")
    limit: int = limit_field()


def list_by_name(
    resource: NamedResource[Any], *, summary: str, tenancy: Tenancy, role: Role = Role.VIEWER
) -> Route:
    """Return the route that lists a resource in pages by name."""

    async def handle(request: CheckedRequest[NamesQuery, None], api: Api) -> Response:
        query = request.query
        own = {"tenant": request.tenant} if tenancy is Tenancy.FILTERED else {}
        rows = await api.port(resource.page, after=query.after, limit=query.limit + 1, **own)
        shown = rows[: query.limit]
        following = shown[-1].name if len(rows) > query.limit else None
        return answer(page_of(resource, shown, next_after=following))

    handle.__name__ = f"list_{resource.noun}"
    doc = f"A page of {resource.noun}, by name."
    following = (str | None, "`after` of the next page; null: last page")
    return Route(
        method=Method.GET,
        path=f"/v1/{resource.noun}",
        handle=handle,
        role=role,
        tenancy=tenancy,
        summary=summary,
        query=NamesQuery,
        answers={200: schema_of_page(resource, doc=doc, next_after=following)},
    )
