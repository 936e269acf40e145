"""What `cortex budgets` and `cortex quotas` share: pages by name, and changes of a limit."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar

import click

from cortex.cli.changes import ChangeRequest
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.view.cells import Cell
from cortex.view.cells import Row as Document

LIMIT_MAX: Final = 1000
NEARLY: Final = Decimal("0.8")
"""Share of a limit from which it counts as nearly used up."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


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


Row = TypeVar("Row", bound=Named)


def page_options(command: Decorated) -> Decorated:
    """Add `--limit` and `--after` of a list by name."""
    for option in (
        click.option(
            "--after",
            default="",
            metavar="NAME",
            help="Show the names after this one: the next page.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(1, LIMIT_MAX),
            default=100,
            show_default=True,
            metavar="N",
        ),
    ):
        command = option(command)
    return command


def show_page(
    output: Output,
    title: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    *,
    limit: int,
    after: str,
    empty: str,
) -> None:
    """Show a page by name, and how to see the next one."""
    output.listing(title, columns, rows, empty=f"no more {title}" if after else empty)
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"more: --after {rows[-1].name}", "dim")


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

    async def document(db: Database, *, by: str, reason: str) -> dict[str, Any]:
        changed = await work(db, by=by, reason=reason)
        return {
            "name": changed.name,
            "before": None if changed.before is None else float(changed.before),
            "after": None if changed.after is None else float(changed.after),
            **more(changed),
        }

    row: dict[str, Any] = change.write(call, document, operation=operation, request=request)
    return row


def limit_columns(
    title: str, worded: Callable[[Document, Decimal], str]
) -> tuple[Column[Document], ...]:
    """Return the columns of a changed limit; `worded` shows an amount of the row's unit."""

    def shown(row: Document, which: str) -> Cell:
        if row[which] is None:
            return Cell("none", "dim")
        return Cell(worded(row, Decimal(str(row[which]))))

    return (
        Column(name="name", title=title, shown=lambda r: Cell(safe(r["name"]), "bold")),
        Column(name="before", shown=lambda r: shown(r, "before"), is_right=True),
        Column(name="after", shown=lambda r: shown(r, "after"), is_right=True),
    )
