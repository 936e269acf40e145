"""The results of the hunt: an aligned table, the failures, and a summary."""

from collections.abc import Iterator, Sequence

from chaos.mutants.everyday import EVERYDAY
from chaos.mutants.hunt import Result

_HEAD = ("mutant", "caught by", "in s", "seed", "what is broken")


def table(results: Sequence[Result], *, first_seed: int) -> str:
    """The whole table, for a terminal; a seed beyond the first one was a further try."""
    rows = [_HEAD, *(_row(each, first_seed) for each in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    wrong = [f"  {line}" for each in results for line in _wrong(each)]
    parts = [lines, ["", "wrong:", *wrong] if wrong else [], ["", sentence(results)]]
    return "\n".join(line for part in parts for line in part) + "\n"


def sentence(results: Sequence[Result]) -> str:
    """A summary in one sentence."""
    mutants = [each for each in results if each.mutant is not None]
    survived = [each.mutant.name for each in mutants if each.mutant and not each.is_right]
    dirty = [each.scene for each in results if each.mutant is None and not each.is_right]
    summary = f"{len(mutants) - len(survived)} of {len(mutants)} mutants were caught"
    if survived:
        summary += f"; {', '.join(survived)} survived"
    if dirty:
        summary += (
            f"; what was found in {', '.join(dirty)} proves nothing: unbroken it breaks rules"
        )
    return summary


def name_of(result: Result) -> str:
    """The name of the mutant, or of its scene."""
    return f"({result.scene})" if result.mutant is None else result.mutant.name


def _row(result: Result, first_seed: int) -> tuple[str, ...]:
    tries = result.seed - first_seed + 1
    return (
        name_of(result),
        caught_by(result),
        f"{result.took_s:.1f}",
        f"{result.seed}" if tries == 1 else f"{result.seed}, try {tries}",
        f"nothing, in {result.scene}" if result.mutant is None else result.mutant.what,
    )


def caught_by(result: Result) -> str:
    """The invariants that caught it; or that none did, or that nothing ran."""
    if result.findings is None:
        return "DID NOT RUN"
    if result.mutant is None:
        return "-" if result.is_right else "RULES BROKEN"
    if result.scene == EVERYDAY and result.is_right:
        return ", ".join(result.findings.invalid)
    return result.mutant.invariant if result.is_right else "SURVIVED"


def _wrong(result: Result) -> Iterator[str]:
    if result.is_right:
        return
    name = name_of(result)
    if result.findings is None:
        yield f"{name}: {result.error}"
        return
    if result.scene == EVERYDAY and result.mutant is not None:
        yield f"{name}: neither an ordinary run nor the simulation broke a rule"
        return
    if result.mutant is not None:
        others = ", ".join(result.findings.invalid) or "no rule"
        yield f"{name}: {result.mutant.invariant} was not broken; {others} was"
        return
    if result.findings.stuck is not None:
        yield f"{name}: {result.findings.stuck}"
    for invariant, why in result.findings.invalid.items():
        yield from (f"{name}: {invariant}: {line}" for line in why)
