"""Refusal of values too large to write as JSON, in a process whose memory is limited.

orjson ends the process with SIGSEGV when it gets no memory for its text, so the value is measured
before. A process without a limit measures the text instead, which costs nothing.
"""

from typing import Any, Final

import attrs

from cortex.domain.canonical import DEPTH_MAX
from cortex.domain.errors import InvalidValueError
from cortex.domain.limits import MIB, SizeLimit

TEXT: Final = SizeLimit(
    # Of values without a limit of their own.
    bytes_max=64 * MIB,
    way_out="write it to a file in the job's workspace and pass its path",
)


@attrs.define
class Scarce:
    """Whether this process has a limit of memory."""

    memory: bool = False


scarce: Final = Scarce()


def refuse_heavy(value: Any, what: str, limit: SizeLimit) -> None:
    """Raise `InvalidValueError` for a plain value whose JSON cannot be within a limit."""
    least = _least_bytes(value, limit.bytes_max)
    if least > limit.bytes_max:
        raise InvalidValueError(
            f"{what} is at least {least:,} bytes of JSON, more than {limit.bytes_max:,}",
            hint=limit.way_out,
        )


def _least_bytes(value: Any, enough: int) -> int:
    """Return the least size of a value's JSON; measures no further when that is above `enough`.

    Runs no code of the value's class.
    """
    level, count = [value], 0
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if issubclass(kind, str):
                count += 2 + str.__len__(each)
            elif issubclass(kind, dict):
                count += 2 + 2 * dict.__len__(each)
                if count <= enough:
                    inner += dict.keys(each)
                    inner += dict.values(each)
            elif issubclass(kind, list | tuple):
                base = list if issubclass(kind, list) else tuple
                count += 2 + base.__len__(each)
                if count <= enough:
                    inner += base.__iter__(each)
            else:
                count += 1
        if count > enough or not inner:
            break
        level = inner
    return count
