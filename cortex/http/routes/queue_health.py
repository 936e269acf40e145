"""`/v1/health`: the queue, what failed lately, and background work."""

from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.health import Unit, Word
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, record
from cortex.http.framework.tenancy import Tenancy
from cortex.store.health import health


@attrs.frozen(kw_only=True)
class HealthMeasure:
    """One figure with its thresholds."""

    name: str
    unit: Unit
    value: float | None = field(doc="null: nothing to measure")
    among: int | None = field(doc="of a rate: how many attempts or jobs it is a part of")
    warn_over: float
    bad_over: float | None = field(doc="null: it is never bad by itself")
    word: Word


@attrs.frozen(kw_only=True)
class RunnerHealth:
    """Background work of one kind."""

    name: str
    word: Word
    items: int | None = field(doc="items of the last run; null: only skipped so far")
    duration_s: float | None = field(doc="how long that run took, in seconds")
    error: str | None = field(doc="why it failed; null: it succeeded")
    item_count: int = field(doc="items of all runs")
    succeeded_ago_s: float | None = field(doc="seconds since a run succeeded")
    bad_over_s: float = field(doc="it is bad when that is longer ago")


@attrs.frozen(kw_only=True)
class Health:
    """All measures and all runners."""

    word: Word = field(doc="the worst of them")
    now: datetime
    span_s: float = field(doc="the rates are of this many seconds, up to now")
    measures: list[HealthMeasure]
    runners: list[RunnerHealth]
    stranded_types: list[str] = field(doc="types of jobs that wait for code, those of most first")


async def show_health(_: CheckedRequest[None, None], api: Api) -> Response:
    found = await api.port(health)
    return answer(
        Health(
            word=found.word,
            now=found.now,
            span_s=found.span_s,
            measures=[record(HealthMeasure, each) for each in found.measures],
            runners=[record(RunnerHealth, each) for each in found.runners],
            stranded_types=list(found.stranded_types),
        )
    )


ROUTES: Final = (
    read(
        "/v1/health",
        show_health,
        "Show queue, failures and background work, each with its threshold and a word.",
        answers={200: Health},
        tenancy=Tenancy.INSTALLATION,
    ),
)
