"""A request, or several of the same shape, in the form that people need to decide.

No argument is left out: long ones are wrapped, never truncated.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from rich.cells import cell_len, chop_cells

from cortex.domain.approvals.approval import Approval, ApprovalStatus, ended
from cortex.domain.approvals.vote import varying
from cortex.domain.argument_brief import argument_name
from cortex.domain.argument_check import ArgumentChange
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.approval_facts import RISK_WORDS, Facts, Vote
from cortex.view.arguments import ArgumentRow, argument_rows, marked_json
from cortex.view.cells import Cell
from cortex.view.phrases import day_time, localised
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown

LABEL_CELLS: Final = 9
NAME_CELLS_MAX: Final = 20
DIGEST_DIGITS: Final = 12
SOON_SHARE: Final = 0.25

Line: TypeAlias = tuple[Cell, ...]


def head(facts: Facts, now: datetime, *, is_own: bool = False) -> tuple[str, Cell]:
    """Return the heading of a request, and its expiry or state for the right side.

    `is_own`: say that another person has to decide, for which a narrow list has no room.
    """
    title = f"…{facts.id.hex[-6:]}  {facts.title}"
    if facts.status is not ApprovalStatus.PENDING or facts.expires_at <= now:
        word = "EXPIRED" if facts.status is ApprovalStatus.PENDING else facts.status.value
        return title, Cell(word, "warn")
    left = (facts.expires_at - now).total_seconds()
    allowed = (facts.expires_at - facts.created_at).total_seconds()
    style = "alarm" if left < SOON_SHARE * allowed else "bold"
    return title, Cell(f"{'not you · ' if is_own else ''}EXPIRES {countdown(left)}", style)


def page(
    facts: Facts,
    approval: Approval,
    width: int,
    *,
    edit: Sequence[ArgumentChange] = (),
    is_raw: bool = False,
) -> list[Line]:
    """Return everything that matters to the decision, in lines of at most `width` cells."""
    lines = [*_about(facts, approval, width), ()]
    if is_raw:
        lines += _exact("raw", facts.canonical, width, style="")
    else:
        lines += arguments(facts.rows, width, is_call=facts.is_call)
    if facts.hidden_count:
        lines += _hidden(facts, width)
    if facts.changes:
        lines += [(), *_titled(f"edited by {facts.edited_by}: as asked, and as it stands", width)]
        lines += diff(facts.changes, width)
    if edit:
        lines += [(), *_titled("your edit: as it stands, and as it would run", width)]
        lines += diff(edit, width)
    if facts.said:
        lines += [(), *_titled("what the model said: it may be wrong, do not decide by it", width)]
        lines += [line for text in facts.said.split("\n") for line in _barred(text, width)]
    if facts.votes:
        lines += [(), *_titled("who agreed", width)]
        lines += [line for vote in facts.votes for line in _indented(_vote(vote), width)]
    return [*lines, (), *_consequences(facts, width)]


def arguments(rows: Sequence[ArgumentRow], width: int, *, is_call: bool) -> Iterator[Line]:
    """Yield each value after its name."""
    label = "args" if is_call else "asks"
    if not rows:
        yield from _exact(label, "none", width, style="dim")
    room = min(NAME_CELLS_MAX, max((cell_len(row.field) for row in rows), default=0))
    for number, row in enumerate(rows):
        indent = Cell((label if number == 0 else "").ljust(LABEL_CELLS), "dim")
        left = width - LABEL_CELLS - room - 2
        names = chopped(row.field, room)
        values = [piece for text in row.value.split("\n") for piece in chopped(text, left)]
        style = "warn" if row.hidden_count else ""
        for index in range(max(len(names), len(values))):
            name = names[index] if index < len(names) else ""
            value = values[index] if index < len(values) else ""
            yield (
                indent if index == 0 else Cell(" " * LABEL_CELLS),
                Cell(f"{fit(name, room)}  ", "accent"),
                Cell(value, style),
            )


def diff(changes: Iterable[ArgumentChange], width: int) -> Iterator[Line]:
    """Yield both sides of each difference."""
    indent = Cell(" " * LABEL_CELLS)
    left = width - LABEL_CELLS - 2
    for change in changes:
        for name in chopped(safe(change.field), left):
            yield indent, Cell(name, "accent")
        for sign, text, style in (("-", change.old, "fail"), ("+", change.new, "done")):
            for index, piece in enumerate(chopped(text, left) if text is not None else ()):
                yield indent, Cell(f"{sign if index == 0 else ' '} {piece}", style)


def batch_page(approvals: Sequence[Approval], facts: Facts, width: int) -> list[Line]:
    """Return what several requests have in common, then the differences of each."""
    names = varying(approvals)
    given = approvals[0].arguments.items()
    same = argument_rows({name: value for name, value in given if name not in names})
    lines = [*_about(facts, approvals[0], width, is_one=False), ()]
    lines += arguments(same, width, is_call=facts.is_call) if same else []
    differing = ", ".join(map(argument_name, names)) or "nothing"
    title = f"{len(approvals)} requests, which differ in {differing}"
    lines += [(), *_titled(safe(title), width)]
    for each in approvals:
        values = "  ".join(
            f"{argument_name(name)}={marked_json(each.arguments[name])}" for name in names
        )
        first = Cell(f"{short_id(each.id)}  ".ljust(LABEL_CELLS), "bold")
        for index, piece in enumerate(chopped(values, width - LABEL_CELLS) or [""]):
            yield_first = first if index == 0 else Cell(" " * LABEL_CELLS)
            lines.append((yield_first, Cell(piece)))
    return [*lines, (), *_consequences(facts, width, is_one=False)]


def wrapped(text: str, width: int) -> list[str]:
    """Wrap words into lines of at most `width` cells."""
    lines: list[str] = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
        else:
            pieces = chopped(word, width)
            lines += pieces if lines[-1] else []
            lines = lines if lines[-1] else [*lines[:-1], *pieces]
    return lines


def chopped(text: str, width: int) -> list[str]:
    """Split a text into pieces of at most `width` cells; joined, they are the text."""
    width = max(2, width)  # a character of two cells fits
    if len(text) <= width and cell_len(text) <= width:
        return [text]
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)]
    return chop_cells(text, width)


# ---


def _about(facts: Facts, approval: Approval, width: int, *, is_one: bool = True) -> Iterator[Line]:
    risk = "alarm" if facts.needs_last_digits else ""
    effect = f"{RISK_WORDS[facts.risk].upper() if risk else RISK_WORDS[facts.risk]} · "
    effect += " · ".join(filter(None, (facts.effect, facts.undo)))
    yield from _labelled("effect", effect, width, risk)
    yield from _labelled("policy", facts.policy, width)
    if not is_one:
        return
    yield from _labelled("asked", _asker(facts), width)
    yield from _labelled("so far", facts.so_far, width)
    yield from _labelled("people", facts.votes_words, width, "warn")
    yield from _labelled("decided", safe(localised(ended(approval))), width, "bold")
    yield from _labelled("ran as", _ran(approval), width)


def _ran(approval: Approval) -> str:
    if not approval.effect_id:
        return ""
    return f"effect {short_id(approval.effect_id)}, {approval.effect_status}"


def _asker(facts: Facts) -> str:
    agent = f"by {facts.agent}, " if facts.agent else ""
    by = f", submitted by {facts.submitted_by}" if facts.submitted_by else ""
    job = f"job {short_id(facts.job_id)} ({facts.job_type}{by})"
    return f"{agent}{job}, at {facts.step}, {day_time(facts.created_at)}"


def _hidden(facts: Facts, width: int) -> Iterator[Line]:
    for row in facts.rows:
        if row.hidden_count:
            noun = "character" if row.hidden_count == 1 else "characters"
            warning = f"!! {row.hidden_count} hidden {noun} in {row.field}: shown as ⟦U+…⟧"
            yield from _labelled("", warning, width, "warn")


def _vote(vote: Vote) -> str:
    edited = " edited the arguments and" if vote.was_edited else ""
    other = f", {vote.why_not}: it does not count" if vote.why_not else ""
    why = f": {vote.reason}" if vote.reason else ""
    return f"{vote.person}{edited} agreed {day_time(vote.at)} on {vote.channel}{other}{why}"


def _consequences(facts: Facts, width: int, *, is_one: bool = True) -> Iterator[Line]:
    if facts.is_open:
        yield from _labelled("approve", facts.if_approved, width)
        yield from _labelled("deny", facts.if_denied, width)
        yield from _labelled("nobody", facts.if_expired, width)
    if is_one:
        yield from _labelled("sha256", f"{facts.digest[:DIGEST_DIGITS]}…  v{facts.version}", width)


def _labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    if not text:
        return
    for index, line in enumerate(wrapped(text, width - LABEL_CELLS)):
        yield Cell((label if index == 0 else "").ljust(LABEL_CELLS), "dim"), Cell(line, style)


def _exact(label: str, text: str, width: int, *, style: str) -> Iterator[Line]:
    for index, piece in enumerate(chopped(text, width - LABEL_CELLS)):
        yield Cell((label if index == 0 else "").ljust(LABEL_CELLS), "dim"), Cell(piece, style)


def _titled(title: str, width: int) -> Iterator[Line]:
    for line in wrapped(title, width):
        yield (Cell(line, "dim"),)


def _barred(text: str, width: int) -> Iterator[Line]:
    """Yield quoted text behind a bar, so that none of its lines passes for the app's own."""
    for line in wrapped(text, width - LABEL_CELLS):
        yield Cell("│ ".rjust(LABEL_CELLS), "dim"), Cell(line)


def _indented(text: str, width: int) -> Iterator[Line]:
    for line in wrapped(text, width - LABEL_CELLS):
        yield Cell(" " * LABEL_CELLS), Cell(line)
