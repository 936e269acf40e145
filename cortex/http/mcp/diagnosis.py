"""The tool that runs the checks of `cortex doctor`, in the process that serves the tools."""

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio
from starlette.responses import Response

from cortex.domain.errors import UnavailableError
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer, read
from cortex.http.framework.tenancy import Tenancy
from cortex.http.mcp.tool import Tool
from cortex.view.doctor import Finding, Grade

PATH: Final = "/doctor"
BOUND_S: Final = 45.0

Checks = Callable[[], Sequence[Finding]]
"""Runs all checks; blocks for seconds."""


@attrs.frozen(kw_only=True)
class Diagnosis:
    """What the checks found."""

    healthy: bool
    checks: list[Finding]


def doctor_tool(checks: Checks) -> Tool:
    """Return the tool; one caller at a time runs the checks, the others wait."""
    one = trio.CapacityLimiter(1)

    async def show(_: CheckedRequest[None, None], __: Api) -> Response:
        with trio.move_on_after(BOUND_S) as bound:
            found = await trio.to_thread.run_sync(checks, limiter=one, abandon_on_cancel=True)
            is_healthy = not any(each.grade is Grade.FAIL for each in found)
            return answer(Diagnosis(healthy=is_healthy, checks=list(found)))
        if bound.cancelled_caught:
            raise UnavailableError(f"the checks took more than {BOUND_S:g} s", hint="try again")
        raise AssertionError

    return Tool(
        name="run_doctor",
        title="Find problems of the installation",
        route=read(
            PATH,
            show,
            "Find problems, and show how to fix them.",
            tenancy=Tenancy.INSTALLATION,
            answers={200: Diagnosis},
        ),
        description="Check everything that may be wrong with the installation: settings, database, "
        "pods, queue, effects, schedules. Each finding has the commands that fix it.",
    )
