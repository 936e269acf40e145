"""How far a job has come, as a bar for people."""

from typing import Final

from cortex.domain.published import JobProgress

BAR_CELLS: Final = 8
_FULL: Final = "█"
_EMPTY: Final = "░"


def bar(progress: JobProgress, cells: int = BAR_CELLS) -> str:
    """Return a bar and its figures: `██░░░░░░ 3/10 pages`; not safe yet.

    Only what is done in full fills the last cell.
    """
    filled = cells if progress.share >= 1 else int(progress.share * cells)
    figures = f"{_figure(progress.done)}/{_figure(progress.total)}"
    unit = f" {progress.unit}" if progress.unit else ""
    return f"{_FULL * filled}{_EMPTY * (cells - filled)} {figures}{unit}"


def _figure(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.1f}"
