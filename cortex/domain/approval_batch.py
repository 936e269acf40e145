"""Which requests may be decided in one go: those of one shape, and none that is dangerous."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from cortex.domain.approval import Approval, Risk
from cortex.domain.errors import UsageError

BATCH_MAX: Final = 50
RISK_MAX: Final = Risk.MED
ALONE: Final = "decide them one by one"


def check_batch(approvals: Sequence[Approval]) -> None:
    """Raise `UsageError` that names the first difference unless they may be decided together.

    One may always. Takes requests as `store.approvals.show` gives them.
    """
    if len(approvals) == 1:
        return
    if len(approvals) > BATCH_MAX:
        raise UsageError(
            f"{len(approvals)} approvals are more than the {BATCH_MAX} that are decided at once"
        )
    for each in approvals:
        if Risk(each.risk).rank > RISK_MAX.rank:
            raise UsageError(f"approval {each.id} is {each.risk}: it stands alone", hint=ALONE)
    first = approvals[0]
    for noun, of in _SHAPE.items():
        for other in approvals[1:]:
            if of(other) != of(first):
                raise UsageError(
                    f"approvals {first.id} and {other.id} are of different {noun}: "
                    f"{_told(of(first))} and {_told(of(other))}",
                    hint=ALONE,
                )


def varying(approvals: Sequence[Approval]) -> list[str]:
    """Return the names of the arguments in which requests of one shape differ."""
    names = list(approvals[0].arguments)
    texts = {
        name: {repr(each.arguments[name]) for each in approvals}  # 1 and 1.0 differ
        for name in names
    }
    return [name for name in names if len(texts[name]) > 1]


_SHAPE: Final[dict[str, Callable[[Approval], Any]]] = {
    "tools": lambda each: each.tool or f"{each.job_type}, {each.key}",
    "argument names": lambda each: sorted(each.arguments),
    "policies": lambda each: (each.risk, each.effect, each.policy),
}


def _told(shape: Any) -> str:
    texts = shape if isinstance(shape, list | tuple) else (shape,)
    return ", ".join(str(text) for text in texts) or "none"
