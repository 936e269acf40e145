"""Quotas as values: limits on how often, or for how much, a tool's effects may begin per period."""

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Self

import attrs

from cortex.domain.canonical import MISSING, find
from cortex.domain.errors import RejectedError, UsageError

LIMIT_MAX: Final = Decimal(10) ** 11
DECIMALS_MAX: Final = 8
NAME_MAX: Final = 290
"""Of a quota's name: jobs wait for `quota:NAME`."""
CALLS: Final = "calls"
"""In a name and in a limit: calls are counted, and no argument is added up."""


class Period(StrEnum):
    """What the limit holds for: an hour or a day of UTC."""

    HOUR = "hour"
    DAY = "day"


@attrs.frozen(kw_only=True)
class Quota:
    """A limit for one tool in each period, shared by all pods."""

    tool: str
    argument: str | None = None
    """Dotted path of the argument that is added up; None: calls are counted."""
    unit: str | None = None
    """What the argument is measured in, for people."""
    period: Period
    limit: Decimal

    @property
    def name(self) -> str:
        """The name for people and waiting jobs: `pay:amount:day`, `send_mail:calls:hour`."""
        return f"{self.tool}:{self.argument or CALLS}:{self.period}"

    @property
    def words(self) -> str:
        """For people: "20 calls an hour", "500 EUR a day by amount"."""
        article = "an" if self.period is Period.HOUR else "a"
        by = "" if self.argument is None else f" by {self.argument}"
        return f"{self.worded(self.limit)} {article} {self.period}{by}"

    def worded(self, amount: Decimal) -> str:
        """Return an amount under this quota, for people: "1 call", "1,200.5 EUR"."""
        figure = self.plain(amount)
        if self.argument is None:
            return f"{figure} call" if amount == 1 else f"{figure} calls"
        return figure if self.unit is None else f"{figure} {self.unit}"

    @staticmethod
    def plain(amount: Decimal) -> str:
        """Return an amount without its unit: "1,200.5"."""
        whole, _, rest = f"{amount:,f}".partition(".")
        return f"{whole}.{rest.rstrip('0')}".rstrip(".")

    def amount(self, arguments: Mapping[str, Any]) -> Decimal:
        """Return the amount that a call with these arguments takes.

        Raises `RejectedError` if it is undefined, or more than the whole limit.
        """
        if self.argument is None:
            taken = Decimal(1)
        else:
            value = find(arguments, self.argument)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            taken = Decimal(str(value)) if is_number else Decimal("NaN")
            if not (taken.is_finite() and taken >= 0):
                problem = "is missing" if value is MISSING else f"is {value!r:.80}"
                raise RejectedError(
                    f"tool {self.tool!r} is limited to {self.words}, "
                    f"and {self.argument} {problem}, which is no amount",
                    hint="give a number, zero or more",
                )
        if taken > self.limit:
            raise RejectedError(
                f"tool {self.tool!r} is limited to {self.words}; "
                f"one call of {self.worded(taken)} is more than all of it",
                hint="ask for less, or have the quota raised",
            )
        return taken

    @classmethod
    def parse(cls, tool: str, limit: str, *, argument: str | None = None) -> Self:
        """Parse a quota that a person sets: `limit` reads "20/hour" or "500 EUR/day".

        Raises `UsageError` with the problem.
        """
        if not _TOOL.fullmatch(tool):
            raise UsageError(f"{tool!r} is not the name of a tool")
        if argument is not None and (argument == CALLS or not _ARGUMENT.fullmatch(argument)):
            raise UsageError(
                f"{argument!r} is not an argument that can be added up",
                hint="such as amount, or order.total where it is nested",
            )
        match = _LIMIT.fullmatch(limit.strip())
        if match is None:
            raise UsageError(f"{limit!r} is not a limit", hint="such as 20/hour or '500 EUR/day'")
        figure, unit, period = Decimal(match[1].replace("_", "")), match[2], Period(match[3])
        if argument is None:
            if unit not in (None, "call", CALLS):
                raise UsageError(
                    f"limit {limit!r} counts calls, which are not measured in {unit}",
                    hint="leave the unit out, or name the argument that is added up",
                )
            unit = None
            if figure != figure.to_integral_value():
                raise UsageError(f"limit {limit!r}: {match[1]} is not a whole number of calls")
        if figure > LIMIT_MAX:
            raise UsageError(f"limit {limit!r}: {match[1]} is more than {LIMIT_MAX:,}")
        quota = cls(tool=tool, argument=argument, unit=unit, period=period, limit=figure)
        if len(quota.name) > NAME_MAX:
            raise UsageError(f"the name of quota {quota.name[:NAME_MAX]!r}… is too long")
        return quota


_TOOL: Final = re.compile(r"[^\s:]{1,200}")
_ARGUMENT: Final = re.compile(r"(?=.{1,200}\Z)[^\s.:]+(?:\.[^\s.:]+)*")
_LIMIT: Final = re.compile(
    rf"([0-9][0-9_]{{0,14}}(?:\.[0-9]{{1,{DECIMALS_MAX}}})?)"
    rf"(?:\s+([^\W\d_]\w{{0,19}}))?\s*/\s*({'|'.join(Period)})"
)
