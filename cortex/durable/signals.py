"""Signals in job code: a step receives the next one of its name, or the job waits for it.

The step records what it received, or that none came in time. The end of the time is fixed when the
job first has to wait, by the database's clock, and recorded as a part of the step. Nothing is
recorded for a signal that is there already but the signal.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

import attrs

from cortex.domain.canonical import parse
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import InvalidSignalError, InvalidValueError, TimedOutError, UsageError
from cortex.domain.job import StepKind
from cortex.domain.option_check import checked_seconds
from cortex.domain.phrases import utc_time
from cortex.domain.policy import DELAY_MAX_S
from cortex.domain.signals import check_key, check_name
from cortex.domain.waiting import SIGNAL
from cortex.domain.waits import SignalWait
from cortex.durable.attempt import Attempt
from cortex.durable.codec import input_of
from cortex.durable.results import ResultType, result_type_of
from cortex.durable.step_outcome import StepOutcome

UNTIL: Final = "until"
"""Name of the part of a step that records until when it waits."""


class NoDefault(Enum):
    """The absence of a default: None is one."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


@attrs.frozen(kw_only=True)
class Reception:
    """What a step receives, and for how long it waits."""

    name: str
    key: str | None
    timeout_s: float | None
    default: Any
    type: ResultType | None

    @classmethod
    def checked(
        cls,
        name: str,
        of_type: Any,
        *,
        key: str | None,
        timeout: float | timedelta | None,
        default: Any,
    ) -> "Reception":
        """Return the terms. Raises `UsageError` for impossible ones."""
        check_name(name)
        what = f"signal {name!r}"
        if key is not None:
            check_key(key)
        timeout_s = None
        if timeout is not None:
            timeout_s = checked_seconds(timeout, f"{what}: timeout", low_s=0, high_s=DELAY_MAX_S)
        if timeout_s is None and default is not NO_DEFAULT:
            raise UsageError(f"{what} has a default and no timeout", hint="give it a timeout=")
        return cls(
            name=name,
            key=key,
            timeout_s=timeout_s,
            default=default,
            type=None if of_type is None else result_type_of(of_type, what),
        )


async def receive(attempt: Attempt, key: str, until_key: str, reception: Reception) -> Any:
    """Return what step `key` receives; its part `until_key` records until when it waits.

    Raises `Suspended` while there is nothing, `TimedOutError` when nothing came in time, and
    `InvalidSignalError` for a signal that does not fit: the step has consumed it, and has it on
    record.
    """
    journal = attempt.journal
    given = input_of({"signal": reception.name, "key": reception.key}, what=f"step {key!r}")

    async def find() -> StepOutcome:
        # A part on record is asked for first: the replay is complete before anything is taken.
        is_waiting = journal.recorded(until_key)
        until = await _until(attempt, until_key, reception) if is_waiting else None
        await journal.settled(key)
        signal = await attempt.services.signals.take(
            attempt.claim, step=key, name=reception.name, key=reception.key
        )
        if signal is not None:
            value = parse(signal.payload)
            sent_at = signal.sent_at.isoformat()
            return StepOutcome(value={"signal": str(signal.id), "sent_at": sent_at, "value": value})
        if reception.timeout_s is None and until is None:
            raise _wish(reception, None, until)
        if until is None:
            until = await _until(attempt, until_key, reception)
        left_s = (until - await attempt.services.clock.now()).total_seconds()
        if left_s > 0:
            raise _wish(reception, left_s, until)
        return StepOutcome(value={"timed_out": until.isoformat()})

    recorded = await journal.once(StepKind.STEP, key, given=given, run=find)
    return _opened(key, reception, recorded)


async def _until(attempt: Attempt, until_key: str, reception: Reception) -> datetime:
    """Return until when the step waits: fixed when it first has to."""
    if (fixed := attempt.instants.get(until_key)) is not None:
        return fixed

    async def fix() -> StepOutcome:
        length = timedelta(seconds=reception.timeout_s or 0.0)
        return StepOutcome(value=(await attempt.services.clock.now() + length).isoformat())

    given = input_of({"until": "any"}, what="the end of a wait")
    end = await attempt.journal.once(StepKind.STEP, until_key, given=given, run=fix)
    attempt.instants[until_key] = instant = datetime.fromisoformat(end)
    return instant


def _wish(reception: Reception, delay_s: float | None, until: datetime | None) -> Suspended:
    to = "" if reception.key is None else f" to {reception.key}"
    at_most = "" if until is None else f" until {utc_time(until)}"
    return Suspended(
        f"{SIGNAL}{reception.name}",
        f"waits for signal {reception.name}{to}{at_most}",
        delay_s=delay_s,
        waits=(SignalWait(name=reception.name, key=reception.key),),
    )


def _opened(key: str, reception: Reception, recorded: Mapping[str, Any]) -> Any:
    if "timed_out" in recorded:
        if reception.default is not NO_DEFAULT:
            return reception.default
        raise TimedOutError(
            f"signal {reception.name!r} did not come in time, until {recorded['timed_out']}",
            scope="signal",
            limit_s=reception.timeout_s,
        )
    if reception.type is None:
        return recorded["value"]
    try:
        return reception.type.restore(recorded["value"], f"signal {reception.name!r}")
    except InvalidValueError as error:
        raise InvalidSignalError(
            f"{error.message} (signal {recorded['signal']}, in step {key!r}, is no "
            f"{reception.type.name})",
            hint="receive the next one, or mend the type and retry the job: it is on record",
            payload=recorded["value"],
        ) from error
