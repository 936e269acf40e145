"""`cortex jobs types`."""

from typing import Final

from cortex.cli.listing import list_all
from cortex.view.resources.job_types import TYPES

types: Final = list_all(
    TYPES,
    verb="types",
    help="List the job types that pods have registered, their arguments, and which run now.",
)
