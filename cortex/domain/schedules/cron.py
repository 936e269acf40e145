"""Cron expressions in a time zone: when they fire, by the rules of Debian's cron.

An expression whose minute or hour begins with `*` follows elapsed time: it fires in each of the two
hours of a fold, and not in an hour that a gap leaves out. Any other names times of day: in a fold
such a time fires once, the first time; in a gap it fires once, at the first instant after the gap.
Every instant is in UTC, and there are no leap seconds.
"""

import contextlib
import difflib
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import attrs
from cronsim import CronSim, CronSimError

EXPRESSION_MAX: Final = 200
FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
_MACHINE_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
"""Zones that differ from machine to machine, or say nothing."""
_REFERENCE: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""Where the search for the first instant begins, when an expression is checked."""


class CronError(ValueError):
    """The expression or the zone cannot be used; the message says why, `hint` the way out."""

    def __init__(self, field: str, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.hint = hint


@attrs.frozen
class Cron:
    """A five-field cron expression in a zone. `Cron.parse` checks; the class itself does not."""

    expression: str
    zone: str = "UTC"

    @classmethod
    def parse(cls, expression: str, zone: str = "UTC") -> "Cron":
        """Return a checked expression. Raises `CronError` for one that cannot, or never, fire."""
        cron = cls(" ".join(expression.split()), zone)
        _zone(zone)
        fields = cron.expression.split(" ")
        if len(cron.expression) > EXPRESSION_MAX:
            raise CronError(
                "cron",
                f"{expression[:20]!r}… has {len(cron.expression)} characters",
                hint=f"at most {EXPRESSION_MAX}: write several schedules",
            )
        if len(fields) != len(FIELDS):
            raise CronError(
                "cron",
                f"{expression!r} has {len(fields)} of {len(FIELDS)} fields",
                hint=f"{', '.join(FIELDS)}: such as '0 3 * * *'",
            )
        for name, bad in cron._unreadable(fields):
            raise CronError(
                "cron", f"{expression!r}: {name} {bad!r} is not valid", hint=_EXAMPLES[name]
            )
        if next(cron.after(_REFERENCE), None) is None:
            raise CronError(
                "cron", f"{expression!r} never fires", hint="no month has that day: change it"
            )
        return cron

    @staticmethod
    def _unreadable(fields: list[str]) -> Iterator[tuple[str, str]]:
        """Yield the fields that are wrong by themselves."""
        for index, value in enumerate(fields):
            alone = ["*"] * len(fields)
            alone[index] = value
            try:
                CronSim(" ".join(alone), _REFERENCE)
            except (CronSimError, ValueError, AssertionError):
                yield FIELDS[index], value

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instants later than this one, in order; at most fifty years apart."""
        try:
            simulated = CronSim(self.expression, instant.astimezone(_zone(self.zone)))
        except CronSimError:  # such as 31 February, which each field by itself permits
            return
        last = instant
        with contextlib.suppress(OverflowError):  # after the year 9999
            for local in simulated:
                # In the second hour of a fold, wall time has been ahead already.
                if (found := local.astimezone(UTC)) > last:
                    yield found
                    last = found


def local_time(instant: datetime, zone: str) -> datetime:
    """Return an instant as the wall clocks of a zone show it."""
    return instant.astimezone(_zone(zone))


def jitter(name: str, instant: datetime, longest_s: int) -> timedelta:
    """Return how long after its instant a schedule is due: the same for each caller."""
    digest = hashlib.sha256(f"{name} {instant.astimezone(UTC).isoformat()}".encode()).digest()
    share = int.from_bytes(digest[:4]) / 2**32
    return timedelta(milliseconds=int(share * longest_s * 1000))


def _zone(name: str) -> tzinfo:
    """Return a zone. Raises `CronError` that suggests the nearest one."""
    if name == "UTC":
        return UTC
    if name not in _MACHINE_ZONES:
        # A name that is a folder, a file elsewhere or no file name at all raises the others.
        with contextlib.suppress(LookupError, ValueError, OSError):
            return ZoneInfo(name)
    close = difflib.get_close_matches(name, available_timezones() - _MACHINE_ZONES, n=1)
    raise CronError(
        "tz",
        f"{name[:80]!r} is not a time zone",
        hint=f"did you mean {close[0]!r}?" if close else "such as UTC or Europe/Berlin",
    )


_EXAMPLES: Final = {
    "minute": "0 to 59, such as 0, */15 or 0,30",
    "hour": "0 to 23, such as 3, 8-18 or */2",
    "day of month": "1 to 31, L for the last day, LW for the last weekday",
    "month": "1 to 12 or JAN to DEC",
    "day of week": "0 to 7 (both Sunday), SUN to SAT, MON#1 for the first, 5L for the last Friday",
}
