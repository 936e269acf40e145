"""The page of a run: one self-contained file that loads nothing."""

import json
import shlex
from pathlib import Path
from typing import Final

import jinja2

from chaos.checkers.verdict import Result
from chaos.plan import Options
from chaos.report.chart import chart_of
from chaos.report.scorecard import rows, sentence
from chaos.report.stories import stories
from chaos.run import Outcome

STORIES_MAX: Final = 50
"""Further stories add nothing; the JSON lines beside the page have them all."""

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def again(options: Options) -> str:
    """The command that repeats the plan."""
    usual = Options(seed=options.seed)
    words = ["python", "-m", "chaos", "run", "--seed", str(options.seed)]
    options_given = {
        "--pods": (options.pods, usual.pods),
        "--duration": (f"{options.duration_s:g}", f"{usual.duration_s:g}"),
        "--faults": (",".join(options.faults), ""),
        "--intensity": (f"{options.intensity:g}", f"{usual.intensity:g}"),
        "--scale": (options.scale, usual.scale),
        "--app": (options.app, None),
        "--job": (options.job_type, usual.job_type),
        "--payload": (json.dumps(options.payload), json.dumps(usual.payload)),
    }
    for name, (value, default) in options_given.items():
        if value != default:
            words += [name, str(value)]
    return shlex.join(words)


def page(outcome: Outcome) -> str:
    broken = [v for v in outcome.verdicts if v.result is Result.INVALID]
    jobs = list(dict.fromkeys(job for verdict in broken for job in verdict.jobs))
    return _TEMPLATES.get_template("page.html").render(
        options=outcome.plan.options,
        again=again(outcome.plan.options),
        sentence=sentence(outcome),
        is_good=outcome.is_good,
        rows=list(rows(outcome)),
        verdicts=outcome.verdicts,
        chart=chart_of(outcome.evidence),
        stories=stories(outcome.evidence, jobs[:STORIES_MAX]),
        story_count=len(jobs),
        took_s=outcome.took_s,
    )
