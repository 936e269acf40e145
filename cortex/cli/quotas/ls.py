"""`cortex quotas ls`."""

from typing import Final

from cortex.cli.listing import list_by_name
from cortex.view.resources.quotas import QUOTAS

ls: Final = list_by_name(
    QUOTAS,
    help="""List quotas: limit, usage, time of the next reset, and waiting jobs.""",
)
