"""The page of a run: all in one file, to be kept and sent; it loads nothing from anywhere."""

from pathlib import Path
from typing import Final

import jinja2

from chaos.checkers.verdict import Result
from chaos.report.chart import chart_of
from chaos.report.scorecard import rows, sentence
from chaos.report.stories import stories
from chaos.run import Outcome

STORIES_MAX: Final = 50
"""More of the same tells a reader nothing more; the lines beside the page have them all."""

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(outcome: Outcome) -> str:
    """The page as HTML."""
    broken = [v for v in outcome.verdicts if v.result is Result.INVALID]
    jobs = list(dict.fromkeys(job for verdict in broken for job in verdict.jobs))
    return _TEMPLATES.get_template("page.html").render(
        options=outcome.plan.options,
        sentence=sentence(outcome),
        is_good=outcome.is_good,
        rows=list(rows(outcome)),
        verdicts=outcome.verdicts,
        chart=chart_of(outcome.evidence),
        stories=stories(outcome.evidence, jobs[:STORIES_MAX]),
        story_count=len(jobs),
        took_s=outcome.took_s,
    )
