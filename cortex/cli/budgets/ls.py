"""`cortex budgets ls`."""

from typing import Final

from cortex.cli.listing import list_by_name
from cortex.view.resources.budgets import BUDGETS

ls: Final = list_by_name(
    BUDGETS,
    help="""List budgets: limit, amounts spent and reserved, and waiting jobs.

    For a budget per run, shows the run that spent most; for one per day, the current UTC day.
    """,
)
