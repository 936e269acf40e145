"""`cortex health`: the queue, what failed lately, and background work; for people and monitors."""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.health import Word
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store import health as store
from cortex.store.health import Health
from cortex.view import doctor
from cortex.view import health as view
from cortex.view.cells import pad, width_of

UNHEALTHY: Final = 8
WORD_CELLS: Final = 6
FAILING_FIX: Final = "cortex outbox ls --subscription NAME"
VALUE_CELLS_MAX: Final = 50
"""A longer one, such as an error, moves only its own threshold to the right."""


@click.command(cls=Command)
@click.pass_obj
def health(options: Options) -> None:
    """Show queue, failures and background work, each with its threshold and a word.

    The words are ok, warn and bad. Exits with 8 if anything is bad, with 0 otherwise.
    """
    output = Output(options)
    options.refuse_columns("health shows measures, it has no columns")
    with session(options) as call:
        found = call(store.health)
    output.record(
        attrs.asdict(found, recurse=False),
        name=found.word.value,
        page=lambda: _page(found, output.terminal),
    )
    if found.word is Word.BAD:
        raise click.exceptions.Exit(UNHEALTHY)


def _page(found: Health, terminal: Terminal) -> Iterator[str]:
    yield from _lines(
        [
            (each.word, view.TITLES[each.name], view.value_text(each), view.threshold_text(each))
            for each in found.measures
        ],
        terminal,
    )
    yield ""
    if found.stranded_count:
        text = doctor.code_text(found.stranded_count, found.stranded_types)
        yield from _lines([(Word.WARN, "code", text, doctor.CODE_FIX)], terminal)
        yield ""
    if found.failing:
        yield from _lines(
            [
                (Word.WARN, safe(each.name), safe(view.subscription_text(each)), FAILING_FIX)
                for each in found.failing
            ],
            terminal,
        )
        yield ""
    yield from _lines(
        [
            (each.word, safe(each.name), view.runner_text(each), view.runner_threshold(each))
            for each in found.runners
        ],
        terminal,
    )
    if found.runners:
        yield ""
    for word, names in view.troubles(found):
        yield terminal.paint(f"{word}: {names}", view.STYLES[word])
    if found.word is Word.OK:
        yield terminal.paint("ok", view.STYLES[Word.OK])
    yield terminal.paint(f"rates of the last {span(found.span_s)}", "dim")


def _lines(rows: Sequence[tuple[Word, str, str, str]], terminal: Terminal) -> Iterator[str]:
    title_cells = max((width_of(row[1]) for row in rows), default=0) + 2
    lengths = [width_of(row[2]) for row in rows]
    value_cells = max((each for each in lengths if each <= VALUE_CELLS_MAX), default=0)
    for word, title, value, threshold in rows:
        shown = terminal.paint(f"{word.value:<{WORD_CELLS}}", view.STYLES[word])
        limit = terminal.paint(threshold, "dim")
        yield f"{shown}{pad(title, title_cells)}{pad(value, value_cells)}  {limit}"
