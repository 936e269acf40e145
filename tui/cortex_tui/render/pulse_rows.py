"""Lines of the first screen: needs that wait for a person, and the newest failed jobs."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.known_tool import trust_words
from cortex.domain.safe import safe
from cortex.store.pulse import Failure, Need
from cortex.view.cells import Cell
from cortex.view.phrases import age
from cortex_tui.model.pulse import Opens, PulseLine
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown

SOON_S: Final = 300.0
"""A request that expires sooner has another colour."""
_WIDE: Final = 110
_COLUMNS: Final = ((18, 12, 0), (24, 16, 16))
"""Cells for the name, the word and the agent: of a narrow terminal, and of a wide one."""
_AGE: Final = 12
_GAP: Final = "  "
_SIGNS: Final = {"approval": "◆", "effect": "?", "budget": "$", "quota": "$", "person": "!"}


def need_lines(needs: Sequence[Need], now: datetime, width: int) -> Iterator[PulseLine]:
    """Yield a line for each need: its object, how long it has waited, and its deadline."""
    for need in needs:
        kind, _, name = need.word.partition(":") if need.kind == "job" else (need.kind, "", "")
        screen = {"approval": "approvals", "effect": "effects"}.get(need.kind, "job")
        text, style = _need_text(need, kind, name, now)
        word = {"approval": need.word, "effect": "unknown"}.get(kind, kind)
        waited = "" if need.since is None else f"waits {_age(need.since, now)}"
        cells = (
            Cell(f"{_SIGNS.get(kind, '!')} ", "appr"),
            *_columns((need.name, "bold"), (word, "appr"), (need.agent or "", "dim"), width),
            *_text(text, style, waited, width),
        )
        yield PulseLine(cells, Opens(screen, need.id))


def failure_lines(failures: Sequence[Failure], now: datetime, width: int) -> Iterator[PulseLine]:
    """Yield a line for each job: its error, and how long ago it failed."""
    for each in failures:
        passed = _age(each.at, now)
        ago = passed if passed == "now" else f"{passed} ago"
        cells = (
            Cell("✗ ", "fail"),
            *_columns(
                (each.type, "bold"), (each.error or "", "fail"), (each.agent or "", "dim"), width
            ),
            *_text(each.message or "", "", ago, width),
        )
        yield PulseLine(cells, Opens("job", each.job_id))


def _need_text(need: Need, kind: str, name: str, now: datetime) -> tuple[str, str]:  # noqa: PLR0911 -- a table
    left_s = None if need.until is None else (need.until - now).total_seconds()
    match kind:
        case "approval":
            if left_s is None or left_s <= 0:
                return "expired", "warn"
            return f"expires in {countdown(left_s)}", "warn" if left_s <= SOON_S else ""
        case "effect":
            return f"outcome unknown: {need.why}" if need.why else "outcome unknown", ""
        case "budget":
            return f"{name} is spent", ""
        case "quota":
            again = "" if left_s is None else f", again in {countdown(left_s)}"
            return f"{name} is used up{again}", ""
        case "trust":
            return trust_words(name), ""
        case _:
            return f"{name} needs a person", ""


def _columns(
    name: tuple[str, str], word: tuple[str, str], agent: tuple[str, str], width: int
) -> Iterator[Cell]:
    for (text, style), room in zip((name, word, agent), _COLUMNS[width >= _WIDE], strict=True):
        if room:
            yield Cell(fit(safe(text), room) + _GAP, style)


def _text(text: str, style: str, at: str, width: int) -> tuple[Cell, Cell]:
    """Return the text in the room left, and the time at the right."""
    taken = 2 + sum(room + len(_GAP) for room in _COLUMNS[width >= _WIDE] if room)
    room = max(0, width - taken - _AGE)
    return Cell(fit(safe(text), room), style), Cell(fit(at, _AGE, right=True), "dim")


def _age(instant: datetime, now: datetime) -> str:
    return age(max(0.0, (now - instant).total_seconds()))
