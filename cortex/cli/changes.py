"""The options of commands that change something, and the write that they share.

`@changes(VERB)` adds `--reason`, `--yes`, `--as` and `--idempotency-key`; the command gets them as
one `ChangeRequest`.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import attrs
import click

from cortex.cli.asking import acting, as_option, confirm, reason_option, unasked_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Options, stacked
from cortex.cli.screen.output import Output
from cortex.domain.people import Identity
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.view.cells import Cell, Row
from cortex.view.resource import Field
from cortex.view.verbs import Verb

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Work(Protocol):
    """A change in the database, in a person's name."""

    def __call__(self, db: Database, /, *, by: str, reason: str) -> Awaitable[object]: ...


class PersonsWork(Protocol):
    """A change that only people may make, with the proof of who acts."""

    def __call__(self, db: Database, /, *, by: Identity, reason: str) -> Awaitable[object]: ...


@attrs.frozen(kw_only=True)
class ChangeRequest:
    """Who wants a change, and why."""

    options: Options
    identity: Identity
    reason: str
    is_agreed: bool
    key: str | None
    output: Output = attrs.field(init=False)

    @output.default
    def _output(self) -> Output:
        return Output(self.options)

    @property
    def by(self) -> str:
        """The name to record."""
        return self.identity.name

    @property
    def credential(self) -> str:
        """What proves who acts, to record."""
        return self.identity.proven

    def confirm(self, question: str) -> None:
        """Ask y/N unless `--yes` was given; see `asking.confirm`."""
        confirm(safe(question), self.options, is_agreed=self.is_agreed)

    def write(
        self, call: Session, work: Work, *, operation: str, request: Mapping[str, object]
    ) -> Any:
        """Write once, and return the response as JSON stores it; see `mutate`.

        `request` is everything that was asked for, besides person and reason.
        """
        return self._once(
            call,
            lambda db: work(db, by=self.by, reason=self.reason),
            operation=operation,
            request=request,
        )

    def write_as_person(
        self, call: Session, work: PersonsWork, *, operation: str, request: Mapping[str, object]
    ) -> Any:
        """Write as `write` does what only people may: the work gets the proof of who acts."""
        return self._once(
            call,
            lambda db: work(db, by=self.identity, reason=self.reason),
            operation=operation,
            request=request,
        )

    def _once(
        self,
        call: Session,
        work: Callable[[Database], Awaitable[object]],
        *,
        operation: str,
        request: Mapping[str, object],
    ) -> Any:
        return mutate(
            call,
            work,
            output=self.output,
            key=self.key,
            operation=operation,
            request={**request, "by": self.by, "reason": self.reason},
        )


def changes(verb: Verb) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a verb; the command gets a `ChangeRequest` first."""

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
                identity=acting(options, actor),
                reason=reason,
                is_agreed=is_agreed,
                key=idempotency_key,
            )
            command(request, **given)

        wanted = [
            # A dry run needs no reason: the command checks it.
            reason_option(
                verb.reason, is_required=verb.is_reason_required and not verb.has_dry_run
            ),
            unasked_option
            if verb.asks is None
            else click.option("--yes", "is_agreed", is_flag=True, help=verb.asks),
            as_option,
            *([idempotent] if verb.has_key else []),
        ]
        return stacked(*wanted)(packed)

    return decorate


_STYLES: Final = {"created": "done", "updated": "run", "unchanged": "dim"}


def applied_columns(noun: str, *own: Field[Row]) -> tuple[Field[Row], ...]:
    """Return the columns of what files were applied as: name, the noun's own, change."""
    return (
        Field(name="name", title=noun, style="bold"),
        *own,
        Field(name="change", shown=lambda r: Cell(r["change"], _STYLES[r["change"]])),
    )
