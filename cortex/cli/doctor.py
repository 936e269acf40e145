"""`cortex doctor`: problems of this installation, and their fixes."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import click

from cortex.cli.checks import findings, quick_findings
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.domain.safe import safe
from cortex.view.doctor import Finding, Grade

UNHEALTHY: Final = 8
GRADE_CELLS: Final = 6
TEXT_CELLS_MIN: Final = 16
STYLES: Final = {Grade.OK: "done", Grade.WARN: "warn", Grade.FAIL: "fail"}


@click.command(cls=Command)
@click.option("--quick", "is_quick", is_flag=True, help="Check only that a pod of this host works.")
@click.pass_obj
def doctor(options: Options, *, is_quick: bool) -> None:
    """Check everything that may be wrong here, and show how to fix it.

    Works without a database as well. The output contains no secrets, so you can share it. Exits
    with 8 when jobs are lost, stopped or delayed. --quick is for the health check of a container.
    """
    output = Output(options)
    options.refuse_columns("doctor shows findings, it has no columns")
    found = list(quick_findings(options) if is_quick else findings(options, output.terminal))
    is_healthy = not any(each.grade is Grade.FAIL for each in found)
    output.record(
        {"healthy": is_healthy, "checks": found},
        name="healthy" if is_healthy else "unhealthy",
        page=lambda: _page(found, output.terminal),
    )
    if not is_healthy:
        raise click.exceptions.Exit(UNHEALTHY)


def _page(found: Sequence[Finding], terminal: Terminal) -> Iterator[str]:
    check_cells = max(len(each.check) for each in found) + 2
    indent = GRADE_CELLS + check_cells
    for each in found:
        grade = terminal.paint(f"{each.grade.value:<{GRADE_CELLS}}", STYLES[each.grade])
        first, *rest = _wrapped(each.found, terminal, indent)
        yield f"{grade}{each.check:<{check_cells}}{first}"
        for line in rest:
            yield f"{'':{indent}}{line}"
        for line in _wrapped(each.fix or "", terminal, indent):
            yield f"{'':{indent}}{terminal.paint(line, 'dim')}"
    yield ""
    for text, style in _verdict(found):
        for line in _wrapped(text, terminal, 0):
            yield terminal.paint(line, style)


def _wrapped(text: str, terminal: Terminal, indent: int) -> list[str]:
    """Wrap text to the terminal; elsewhere keep one line, so that it can be searched."""
    shown = safe(text)
    if not terminal.is_tty:
        return [shown] if shown else []
    cells = max(TEXT_CELLS_MIN, terminal.width - indent)
    return textwrap.wrap(shown, cells, break_on_hyphens=False)


def _verdict(found: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    ill = [each.check for each in found if each.grade is Grade.FAIL]
    doubtful = [each.check for each in found if each.grade is Grade.WARN]
    if ill:
        yield f"unhealthy: {', '.join(ill)}", "fail"
    elif not doubtful:
        yield "healthy", "done"
    if doubtful:
        yield f"needs attention: {', '.join(doubtful)}", "warn"
