"""`cortex jobs submit --jsonl`: a job for each line of a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import attrs

from cortex.cli.files import read_bytes
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.job import JobStatus
from cortex.durable.codec import parse_payload
from cortex.view.resource import Field

LINES_MAX: Final = 20_000
LINES_BYTES_MAX: Final = 256 * 1024 * 1024


@attrs.frozen
class SubmittedJob:
    """A job of a list that was just submitted."""

    id: UUID
    is_new: bool = True
    """False: the rule of its type made the submit stand for a job that existed."""

    @property
    def status(self) -> JobStatus | None:
        """None: not looked at."""
        return JobStatus.PENDING if self.is_new else None


SUBMITTED_COLUMNS: Final = (
    Field[SubmittedJob](name="id"),
    Field[SubmittedJob](name="status"),
    Field[SubmittedJob](name="is_new"),
)


def read_lines(name: str, payload: str | None, key: str | None) -> dict[int | None, str]:
    """Return the payload of each line of a file that is not blank, by the line's number.

    Raises `InvalidValueError` that names the line, and `UsageError` for options of one job.
    """
    if payload is not None or key is not None:
        option = "--payload" if payload is not None else "--key"
        raise UsageError(f"--jsonl and {option} exclude each other")
    content = read_bytes(name, what="jobs", bytes_max=LINES_BYTES_MAX)
    lines = {number: line for number, line in enumerate(content.splitlines(), 1) if line.strip()}
    if not 0 < len(lines) <= LINES_MAX:
        raise UsageError(f"{name} has {len(lines):,} lines, not 1 to {LINES_MAX:,}")
    payloads: dict[int | None, str] = {}
    for number, line in lines.items():
        with naming_line(number):
            payloads[number] = parse_payload(line)
    return payloads


@contextmanager
def naming_line(number: int | None) -> Iterator[None]:
    """Name the line in an error about a payload; None: it is the only payload."""
    try:
        yield
    except InvalidValueError as error:
        if number is None:
            raise
        raise InvalidValueError(f"line {number}: {error.message}", hint=error.hint) from error
