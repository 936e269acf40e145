"""Dead letters in columns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, DeadLetterHead
from cortex.domain.phrases import age, short_id, since_s
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.dead_letters import on_retry, state_cell
from cortex.view.resource import Field, on_demand


def _age(row: DeadLetterHead, instant: datetime) -> Cell:
    return Cell(age(since_s(row, instant)))


_ERROR: Final[Sequence[Field[Any]]] = (
    Field(name="error_code", title="code", least=8),
    Field(
        name="error_message",
        title="error",
        shown=lambda r: Cell(safe(r.error_message)),
        least=16,
    ),
    Field(
        name="on_retry",
        title="on retry",
        value=on_retry,
        shown=lambda r: Cell(safe(on_retry(r)), "dim"),
        least=16,
    ),
)
_MORE: Final[Sequence[Field[Any]]] = (
    Field(name="error_source", title="source", is_default=False),
    Field(name="breaker", is_default=False),
    Field(name="agent", is_default=False),
    Field(name="error_class", is_default=False),
    Field(name="step", title="last step", is_default=False),
)

GROUP_COLUMNS: Final[Sequence[Field[DeadLetterGroup]]] = (
    Field(name="fingerprint", shown=lambda r: Cell(r.fingerprint, "bold")),
    Field(
        name="count",
        shown=lambda r: Cell(f"{r.count:,}{'' if r.is_all else '+'}"),
        is_right=True,
    ),
    Field(name="type", least=8),
    *_ERROR,
    Field(
        name="first_at",
        title="first",
        shown=lambda r: _age(r, r.first_at),
        is_right=True,
        is_spare=True,
    ),
    Field(name="last_at", title="last", shown=lambda r: _age(r, r.last_at), is_right=True),
    Field(name="escalated_count", title="escalated", is_default=False),
    Field(name="job_id", title="newest", is_default=False),
    Field(name="is_all", is_default=False),
    *_MORE,
)

LETTER_COLUMNS: Final[Sequence[Field[DeadLetter]]] = (
    Field(name="job_id", title="id", shown=lambda r: Cell(short_id(r.job_id), "bold")),
    Field(name="type", least=8),
    Field(name="state", shown=lambda r: state_cell(r.state)),
    *_ERROR,
    Field(name="created_at", title="age", shown=lambda r: _age(r, r.created_at), is_right=True),
    *on_demand("fingerprint", "tenant", "retried_as", "resolved_by", "resolved_at", "reason"),
    *on_demand("is_automatic", "lineage_id"),
    *_MORE,
)
