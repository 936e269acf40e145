"""How a step is called for people. Its stored key stays as it is: scripts and records use that."""

import re
from datetime import datetime
from typing import Final

from cortex.domain.job import RunningStep
from cortex.domain.phrases import span
from cortex.store.jobs import SubstitutionRow

_KEY: Final = re.compile(r"(?:(?P<turn>\d{1,9}) )?(?P<name>.*?)(?:#(?P<nth>\d{1,9}))?", re.DOTALL)


def step_label(key: str) -> str:
    """Return a key in words: `turn 2 · read_file (2nd)` for `2 read_file#2`; not safe yet.

    Steps of agents begin with the number of the turn; `#2` is the second step of its name.
    """
    found = _KEY.fullmatch(key)
    if found is None or not found["name"]:
        return key
    turn = f"turn {found['turn']} · " if found["turn"] else ""
    nth = f" ({_ordinal(int(found['nth']))})" if found["nth"] else ""
    return f"{turn}{found['name']}{nth}"


def numbered_step(seq: int | str, key: str) -> str:
    """Return a step with its number in the record: `7 · turn 2 · read_file`."""
    return f"{seq} · {step_label(key)}"


def last_step(step: str) -> str:
    """Return in words a step that the database names by its number and its key."""
    seq, _, key = step.partition(" ")
    return numbered_step(seq, key) if key else step


def substitution_text(row: SubstitutionRow) -> str:
    """Return which steps a fallback answered, and why it was asked; not safe yet."""
    if row.answers == 1:
        where = f"step {row.first_seq}"
    else:
        where = f"{row.answers} of the steps {row.first_seq} to {row.last_seq}"
    return f"{row.model}  {where} · {row.reason}"


def running_step(step: RunningStep, now: datetime) -> str:
    """Return a running step in words: `turn 2 · model for 41 s, and 3 more`; not safe yet."""
    for_s = max(0.0, (now - step.since).total_seconds())
    more = f", and {step.more} more" if step.more else ""
    return f"{step_label(step.key)} for {span(for_s)}{more}"


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
