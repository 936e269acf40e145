"""What `cortex budgets` and `cortex quotas` share: pages by name, and changes of a limit."""

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from cortex.cli.changes import ChangeRequest
from cortex.domain.people import Identity
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.view.cells import Cell
from cortex.view.cells import Row as Document
from cortex.view.resource import Field


class Named(Protocol):
    """A row that people page by."""

    @property
    def name(self) -> str: ...


class LimitChange(Named, Protocol):
    """A change of a limit; None: there was no limit, or it is removed."""

    @property
    def before(self) -> Decimal | None: ...
    @property
    def after(self) -> Decimal | None: ...


Limited = TypeVar("Limited", bound=LimitChange)


def change_limit(
    change: ChangeRequest,
    call: Session,
    work: Callable[..., Awaitable[Limited]],
    *,
    operation: str,
    request: Mapping[str, object],
    more: Callable[[Limited], dict[str, Any]] = lambda _: {},
) -> dict[str, Any]:
    """Set, raise or remove a limit; return its name, the limit before and after, and `more`."""

    async def document(db: Database, *, by: Identity, reason: str) -> dict[str, Any]:
        changed = await work(db, by=by, reason=reason)
        return {
            "name": changed.name,
            "before": None if changed.before is None else float(changed.before),
            "after": None if changed.after is None else float(changed.after),
            **more(changed),
        }

    row: dict[str, Any] = change.write_as_person(
        call, document, operation=operation, request=request
    )
    return row


def limit_columns(
    title: str, worded: Callable[[Document, Decimal], str]
) -> tuple[Field[Document], ...]:
    """Return the columns of a changed limit; `worded` shows an amount of the row's unit."""

    def shown(row: Document, which: str) -> Cell:
        if row[which] is None:
            return Cell("none", "dim")
        return Cell(worded(row, Decimal(str(row[which]))))

    return (
        Field(name="name", title=title, style="bold"),
        Field(name="before", shown=lambda r: shown(r, "before"), is_right=True),
        Field(name="after", shown=lambda r: shown(r, "after"), is_right=True),
    )
