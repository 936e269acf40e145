"""The steps of a job on a time axis: one aligned line per step, with its duration and cost."""

from collections.abc import Iterator, Sequence
from typing import Final

from cortex.cli.screen.terminal import Terminal
from cortex.domain.approvals.approval import ApprovalRow
from cortex.store.jobs import EndedAttempt, JobRow, StepRow
from cortex.view.cells import fit, pad, width_of
from cortex.view.waterfall import Axis, StepLine, StepLines

NAME_MAX: Final = 32
BAR_MIN: Final = 12
BAR_MAX: Final = 72


def waterfall(
    job: JobRow,
    steps: Sequence[StepRow],
    attempts: Sequence[EndedAttempt],
    *,
    approvals: Sequence[ApprovalRow] = (),
    terminal: Terminal,
) -> Iterator[str]:
    """Yield the lines; nothing for a job that has not started.

    A decision is drawn as the wait for it.
    """
    if job.started_at is None:
        return
    lines_of = StepLines(job, steps, attempts, approvals)
    names = max((width_of(name) for name in lines_of.names), default=4)
    names = min(max(names, 8), NAME_MAX, terminal.width // 3)
    figures = [max(width_of(f[i]) for f in lines_of.figures) for i in range(3)]
    digits = len(str(steps[-1].seq)) if steps else 1
    fixed = 2 + digits + 1 + names + 2 + sum(figures) + 2 * 3
    cells = max(BAR_MIN, min(BAR_MAX, terminal.width - fixed - 1))
    axis = Axis(lines_of.start, max(lines_of.length_s, 0.001), cells)
    heads = StepLine("", "step", axis.ticks(), "dim", ("took", "tokens", "cost"))
    for line in (heads, *lines_of.drawn(axis)):
        bar = pad(terminal.paint(line.bar, line.style), cells)
        name = pad(fit(line.name, names), names)
        right = "  ".join(
            pad(f, width, right=True) for f, width in zip(line.figures, figures, strict=True)
        )
        dim = line is heads
        yield (
            f"  {pad(line.number, digits, right=True)} "
            f"{terminal.paint(name, 'dim') if dim else name}  {bar}  "
            f"{terminal.paint(right, 'dim') if dim else right}"
        ).rstrip()
