"""A list of ways to spoil a healthy run, each with the checker that must see it."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

from chaos.checkers.verdict import Checker, Result
from tests.support.evidence import Run
from tests.support.healthy_run import healthy_run

Spoil = Callable[[Run], object]


@define
class Sicknesses:
    """Those of one file of tests; each function is entered by its decorator."""

    _all: list[tuple[Checker, Spoil, str]] = field(factory=list)

    def __call__(self, check: Checker, output: str) -> Callable[[Spoil], Spoil]:
        """The run that this function spoils breaks the rule; its verdict contains `output`."""

        def enter(spoil: Spoil) -> Spoil:
            self._all.append((check, spoil, output))
            return spoil

        return enter

    @property
    def all(self) -> list[Any]:
        """The parameters of a test: checker, spoil, output."""
        return [pytest.param(*each, id=each[1].__name__) for each in self._all]


def assert_seen(check: Checker, spoil: Spoil, output: str) -> None:
    """Spoil a healthy run; the checker must find it invalid, in these words."""
    run = healthy_run()
    spoil(run)
    verdict = check(run.evidence())
    assert verdict.result is Result.INVALID, verdict
    assert any(output in why for why in verdict.why), verdict.why
