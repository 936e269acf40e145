"""The result of a seed."""

from typing import Any, Self

from attrs import asdict, frozen


@frozen(kw_only=True)
class Outcome:
    """One simulated seed; it is good if there were no problems."""

    seed: int
    problems: tuple[str, ...]
    digest: str
    """Of everything that happened, in order."""
    line_count: int
    virtual_s: float
    """Of one pod; there are three."""
    took_s: float
    lines: tuple[str, ...] = ()
    """The transcript, if it was requested."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        lists = {name: tuple(plain[name]) for name in ("problems", "lines")}
        return cls(**{**plain, **lists})
