"""`/v1/retention`: for how long finished jobs and facts are kept."""

from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, record
from cortex.http.framework.tenancy import Tenancy
from cortex.store.background import retention


@attrs.frozen(kw_only=True)
class Setting:
    """What is deleted at which age, who said so, and why."""

    completed_s: float | None = field(doc="seconds to keep completed jobs; null: for ever")
    failed_s: float | None = field(doc="the same for failed and cancelled jobs")
    facts_s: float | None = field(doc="the same for facts; null: those of a job as long as the job")
    archive: str | None = field(doc="folder in which a copy is written first")
    changed_by: str
    changed_at: datetime
    reason: str
    held_until: datetime | None = field(
        doc="nothing is deleted before: the clock was moved, or nothing ran for days"
    )


@attrs.frozen(kw_only=True)
class Retention:
    """The setting; the runner `retention` acts on it."""

    retention: Setting | None = field(doc="null: everything is kept")


async def show_retention(_: CheckedRequest[None, None], api: Api) -> Response:
    row = await api.port(retention.current)
    return answer(Retention(retention=None if row is None else record(Setting, row)))


ROUTES: Final = (
    read(
        "/v1/retention",
        show_retention,
        "Show for how long finished jobs and facts are kept.",
        answers={200: Retention},
        tenancy=Tenancy.INSTALLATION,
    ),
)
