"""What a job shows of itself while it runs: a small state, and how far it has come."""

from typing import Any, Final

from cortex.domain.errors import InvalidValueError
from cortex.domain.hot import hot
from cortex.domain.limits import KIB, MIB, SizeLimit, number_of
from cortex.domain.redaction import secret_in, storable

STATE_KEYS_MAX: Final = 64
STATE_KEY_CHARS_MAX: Final = 100
COUNTS_MAX: Final = 2 * STATE_KEYS_MAX
"""How many keys are counted; those that were deleted are forgotten beyond."""
STATE: Final = SizeLimit(
    # Read with every page about the job, and written anew with each change.
    bytes_max=16 * KIB,
    way_out="keep large data in steps or files, and a summary in the state",
)
CHUNK: Final = SizeLimit(
    bytes_max=64 * KIB,
    way_out="emit it in several chunks",
)
CHUNKS_MAX: Final = 10_000
"""Of one job: each is a step, and a job that resumes reads all of them."""
CHUNK_BYTES_MAX: Final = 16 * MIB
"""Of all chunks of one job."""
UNIT_CHARS_MAX: Final = 40
_COUNT_MAX: Final = 1e15
"""Beyond it, floating point numbers skip whole ones."""


@hot(kw_only=True)
class JobProgress:
    """How far a job has come, as its code says."""

    done: float
    total: float
    unit: str = ""

    @property
    def share(self) -> float:
        """From 0 to 1; a job with nothing to do has done it."""
        return self.done / self.total if self.total else 1.0


def checked_progress(done: Any, total: Any, unit: Any) -> JobProgress:
    """Return a progress. Raises `InvalidValueError` unless 0 <= done <= total."""
    for name, value in (("done", done), ("total", total)):
        number = number_of(value)
        if number is None or not 0 <= number <= _COUNT_MAX:
            shown = repr(value)[:40] if number is None else f"{number:g}"
            raise InvalidValueError(
                f"progress: {name} is {shown}, not a number from 0 to {_COUNT_MAX:.0e}",
                hint="write: ctx.progress(3, 10, 'pages')",
            )
    if done > total:
        raise InvalidValueError(
            f"progress: done is {done}, more than the total of {total}",
            hint="raise the total with it: ctx.progress(done, max(done, total))",
        )
    is_text = isinstance(unit, str) and len(unit) <= UNIT_CHARS_MAX and unit.isprintable()
    if not is_text or storable(unit) != unit:
        raise InvalidValueError(
            f"progress: unit is {unit!r:.60}, not one line of at most {UNIT_CHARS_MAX} characters"
        )
    return JobProgress(done=float(done), total=float(total), unit=unit)


def check_state_key(key: Any) -> None:
    """Raise `InvalidValueError` for a key that cannot be published."""
    if not isinstance(key, str) or not 1 <= len(key) <= STATE_KEY_CHARS_MAX:
        raise InvalidValueError(
            f"a key of the state is {key!r:.60}, not text of 1 to {STATE_KEY_CHARS_MAX} characters"
        )
    if storable(key) != key or not key.isprintable():
        raise InvalidValueError(f"a key of the state is not one line of text: {key!r:.60}")
    if secret := secret_in(key):
        raise InvalidValueError(f"a key of the state holds secret {secret}")
