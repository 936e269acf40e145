"""The options of commands that change something, and the write that they share.

`@changes(…)` adds `--reason`, `--yes`, `--as` and `--idempotency-key`; the command gets them as one
`ChangeRequest`.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import attrs
import click

from cortex.cli.asking import acting_name, as_option, confirm, reason_option, unasked_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Options
from cortex.cli.screen.output import Output
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session

DO_NOT_ASK: Final = "Do not ask."

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Work(Protocol):
    """A change in the database, in a person's name."""

    def __call__(self, db: Database, /, *, by: str, reason: str) -> Awaitable[object]: ...


@attrs.frozen(kw_only=True)
class ChangeRequest:
    """Who wants a change, and why."""

    options: Options
    by: str
    reason: str
    is_agreed: bool
    key: str | None
    output: Output = attrs.field(init=False)

    @output.default
    def _output(self) -> Output:
        return Output(self.options)

    def confirm(self, question: str) -> None:
        """Ask y/N unless `--yes` was given; see `asking.confirm`."""
        confirm(safe(question), self.options, is_agreed=self.is_agreed)

    def write(
        self, call: Session, work: Work, *, operation: str, request: Mapping[str, object]
    ) -> Any:
        """Write once, and return the response as JSON stores it; see `mutate`.

        `request` is everything that was asked for, besides person and reason.
        """
        return mutate(
            call,
            lambda db: work(db, by=self.by, reason=self.reason),
            output=self.output,
            key=self.key,
            operation=operation,
            request={**request, "by": self.by, "reason": self.reason},
        )


def changes(
    reason: str = "Stored with the change.",
    *,
    is_reason_required: bool = False,
    yes: str | None = None,
    has_key: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options; the command gets a `ChangeRequest` first.

    `reason` is the help of `--reason`; `yes` that of `--yes`, None for a command that never asks.
    `has_key`: whether a repeated run can return the result of the first one.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        @click.pass_obj
        def packed(
            options: Options,
            /,
            *,
            reason: str,
            actor: str | None,
            is_agreed: bool = False,
            idempotency_key: str | None = None,
            **given: Any,
        ) -> None:
            request = ChangeRequest(
                options=options,
                by=acting_name(actor),
                reason=reason,
                is_agreed=is_agreed,
                key=idempotency_key,
            )
            command(request, **given)

        wanted = [
            reason_option(reason, is_required=is_reason_required),
            unasked_option
            if yes is None
            else click.option("--yes", "is_agreed", is_flag=True, help=yes),
            as_option,
            *([idempotent] if has_key else []),
        ]
        for option in reversed(wanted):
            packed = option(packed)
        return packed

    return decorate
