"""What `cortex budgets` and `cortex quotas` share: pages by name, and a limit before and after."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar

import click

from cortex.cli.asking import reason_option
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column

LIMIT_MAX: Final = 1000
NEARLY: Final = Decimal("0.8")
"""Share of a limit from which it counts as nearly used up."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

kept_reason = reason_option("Stored with the change.", is_required=True)


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


def change_document(change: LimitChange) -> dict[str, Any]:
    """Return a change as JSON stores it."""
    return {
        "name": change.name,
        "before": None if change.before is None else float(change.before),
        "after": None if change.after is None else float(change.after),
    }
