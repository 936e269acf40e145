"""Polls the database; reports an outage once and waits until it is over."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from cortex.cli.screen.output import Output
from cortex.domain.errors import UnavailableError
from cortex.postgres.database import Database
from cortex.postgres.session import Session

P = ParamSpec("P")
T = TypeVar("T")

OUTAGE_POLL_S: Final = 1.0


class Patient:
    """Runs polls of a command; all but the first wait while the database is unavailable."""

    def __init__(self, call: Session, output: Output) -> None:
        self._call, self._output = call, output
        self._has_seen = False

    def __call__(
        self,
        method: Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run one poll. Raises the error of the first poll."""
        is_away = False
        while True:
            try:
                found = self._call(method, *args, **kwargs)
            except UnavailableError as error:
                if not self._has_seen:
                    raise
                if not is_away:
                    self._output.say(f"{error.message}; trying again", "warn")
                is_away = True
                self._call.pause(OUTAGE_POLL_S)
                continue
            self._has_seen = True
            return found
