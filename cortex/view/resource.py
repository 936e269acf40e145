"""A resource as people and programs see it: one table of fields that every surface reads.

The command line makes its tables and documents from it, the HTTP API its answers and their
schemas, the terminal UI its side pages, and the manual its reference page: a field that is added
here appears on all of them.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType, UnionType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from cortex.domain.token import Role
from cortex.view.cells import Cell, count_cell
from cortex.view.phrases import NOTHING, ReadAt, age, date_time, exact, since_s

Row = TypeVar("Row")

DECLARED: Final = object()
"""As the code declares it."""
UNITS: Final = MappingProxyType(
    {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_usd": "US dollars"}
)
"""Units by the end of a field's name."""


@attrs.frozen(kw_only=True)
class Field(Generic[Row]):
    """One property of a row: its value for machines, and how people see it."""

    name: str
    """The key in documents, and in `--columns`."""
    doc: str = ""
    """What the name does not say, in a few words."""
    value: Callable[[Row], Any] = attrs.Factory(lambda self: _read(self.name), takes_self=True)
    """For machines; defaults to the row's attribute of this name."""
    kind: Any = DECLARED
    """Type of the value in schemas; the default is what `value` or the row's class declares."""
    shown: Callable[[Row], Cell] | None = None
    """For people; None: the exact value, instants in local time."""
    style: str = ""
    """Of the exact value, for people."""
    json: Callable[[Row], str] | None = None
    """The value as JSON text that keeps each digit of its numbers, for the HTTP API."""
    title: str | None = None
    is_right: bool = False
    least: int | None = None
    """Minimum cells when the terminal is narrow; None: never cut."""
    is_spare: bool = False
    """Whether it may be omitted when the terminal is narrow; the last one goes first."""
    is_default: bool = True
    """Whether tables show it unless columns were chosen."""
    is_for_people: bool = False
    """Whether it is absent from documents: a remark made of other fields."""
    role: Role = Role.VIEWER
    """The right that callers of the HTTP API need to see it; others get null."""
    parts: "Shape[Any] | None" = None
    """The fields of each of its values where it is a list of rows; their roles count, too."""

    @property
    def heading(self) -> str:
        return self.title or self.name

    @property
    def unit(self) -> str | None:
        """The unit that the end of the name says."""
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), None)

    @property
    def meaning(self) -> str:
        """The text about it with its unit and rights; "" if the name says all."""
        unit = None if self.unit is not None and self.unit in self.doc else self.unit
        text = ", in ".join(filter(None, (self.doc, unit)))
        return "; ".join(filter(None, (text, *self._rights)))

    @property
    def _rights(self) -> list[str]:
        if self.role is not Role.VIEWER:
            return [f"only for {self.role.value}s"]
        parts = () if self.parts is None else self.parts.fields
        return [
            f"`{each.name}` only for {each.role.value}s"
            for each in parts
            if each.role is not Role.VIEWER
        ]

    def exact(self, row: Row) -> Any:
        """Return the value for machines; seconds (`…_s`) to the millisecond."""
        value = self.value(row)
        if self.parts is not None:
            return [self.parts.document(each) for each in value]
        return round(value, 3) if self.name.endswith("_s") and isinstance(value, float) else value

    def cell(self, row: Row, *, for_people: bool = True) -> Cell:
        """Return the cell of a table; for machines it is empty where there is no value."""
        if self.shown is not None and (for_people or self.is_for_people):
            cell = self.shown(row)
            return cell if for_people or cell.text != NOTHING else Cell("")
        value = self.exact(row)
        if for_people and isinstance(value, datetime):
            return Cell(date_time(value), self.style)
        if value in (None, ""):
            return Cell(NOTHING, "dim") if for_people else Cell("")
        return Cell(exact(value), self.style)


def waiting_cell(count: int) -> Cell:
    """Return how many wait, highlighted; a dash when none do."""
    return Cell(str(count), "warn") if count else Cell(NOTHING, "dim")


def ago_cell(row: ReadAt, instant: datetime | None, style: str = "") -> Cell:
    """Return the age of an instant when the row was read; a dash without an instant."""
    return Cell(NOTHING, "dim") if instant is None else Cell(age(since_s(row, instant)), style)


def counted(name: str, *, style: str = "", **more: Any) -> Field[Any]:
    """Return the field of a count, which is faint when it is zero; `more` as in `Field`."""
    read = _read(name)
    return Field(name=name, shown=lambda row: count_cell(read(row), style), is_right=True, **more)


def aged(name: str, *, style: str = "", **more: Any) -> Field[Any]:
    """Return the field of an instant, shown as its age; `more` as in `Field`."""
    read = _read(name)
    return Field(
        name=name, shown=lambda row: ago_cell(row, read(row), style), is_right=True, **more
    )


def on_demand(*names: str, **documented: str) -> tuple[Field[Any], ...]:
    """Return plain fields for documents, which tables show only on request.

    `documented` fields have a text about their meaning.
    """
    named = dict.fromkeys(names, "") | documented
    return tuple(Field(name=name, doc=doc, is_default=False) for name, doc in named.items())


@attrs.frozen(kw_only=True, eq=False)
class Shape(Generic[Row]):
    """The fields of one kind of row, in order."""

    name: str
    """Of its schema: `Pod`."""
    doc: str
    row: type[Row]
    fields: Sequence[Field[Row]]
    unlisted: frozenset[str] = frozenset()
    """Attributes of the row that no surface shows: what other fields are made of."""

    def field(self, name: str) -> Field[Row]:
        return next(each for each in self.fields if each.name == name)

    def document(self, row: Row) -> dict[str, Any]:
        """Return the values for machines by the names of their fields."""
        return {each.name: each.exact(row) for each in self.fields if not each.is_for_people}

    @property
    def plain_fields(self) -> list[Field[Row]]:
        """The fields of a wide table: the usual ones, and all others that hold one value."""
        return [each for each in self.fields if each.is_default or is_scalar(self.kind_of(each))]

    def kind_of(self, field: Field[Row]) -> Any:
        """Return the type of a field in schemas. Raises `TypeError` if nothing declares it."""
        if field.kind is not DECLARED:
            return field.kind
        for declared in (field.value, getattr(self.row, field.name, None)):
            owner = declared.fget if isinstance(declared, property) else declared
            kind = get_type_hints(owner).get("return") if callable(owner) else None
            if kind not in (None, Any):
                return kind
        hints: Mapping[str, Any] = get_type_hints(self.row)
        if field.name in hints:
            return hints[field.name]
        raise TypeError(f"nothing declares the type of {self.name}.{field.name}: give its kind")


@attrs.frozen(kw_only=True, eq=False)
class Resource(Shape[Row]):
    """A kind of thing that people list, and how it is listed."""

    noun: str
    """In the plural: the key of lists in documents."""
    empty: str = ""
    """Message for people when there are none."""


@attrs.frozen(kw_only=True, eq=False)
class WholeResource(Resource[Row]):
    """One that is listed whole: there are few rows."""

    page: Callable[..., Coroutine[Any, Any, list[Any]]]
    """Reads all rows: `page(db)`."""


@attrs.frozen(kw_only=True, eq=False)
class NamedResource(Resource[Row]):
    """One whose rows have a `name`, by which they are listed."""

    page: Callable[..., Coroutine[Any, Any, list[Any]]]
    """Reads the next rows by name: `page(db, after=NAME, limit=N)`."""
    page_rows: int = 100
    """Rows of a page unless a limit is given."""


def is_scalar(kind: Any) -> bool:
    """Return whether a value of this type is one text, number, instant or the like."""
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return all(is_scalar(each) for each in get_args(kind))
    if get_origin(kind) is Literal:
        return True
    is_class = isinstance(kind, type) and kind is not Any and get_origin(kind) is None
    return is_class and not attrs.has(kind) and not issubclass(kind, Mapping | list | tuple)


def _read(name: str) -> Callable[[Any], Any]:
    def value(row: Any) -> Any:
        return row[name] if isinstance(row, Mapping) else getattr(row, name)

    return value
