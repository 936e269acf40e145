"""`cortex limits`: limits of job types, which their code declares."""

from typing import Final

from cortex.cli.listing import list_by_name
from cortex.cli.options import Group
from cortex.view.resources.limits import LIMITS

ls: Final = list_by_name(
    LIMITS,
    help="""List limits of job types: what they permit, what counts now, and waiting jobs.""",
)

limits = Group(
    "limits",
    help=(
        "Show how many jobs of a type may run at once, or begin in a span of time.\n\nJob types "
        "declare their limits in code: @job(limits=[...]). Jobs that exceed one wait; none fails."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.job_limits:ls", "List limits and what counts now.")},
    },
)
