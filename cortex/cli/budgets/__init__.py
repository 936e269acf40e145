"""`cortex budgets`: the group."""

from cortex.cli.options import Group

budgets = Group(
    "budgets",
    help="Limit the money and tokens of agents, tenants and jobs.",
    sections={
        "Look": {"ls": ("cortex.cli.budgets.ls:ls", "List budgets and what is left of them.")},
        "Act": {
            "set": ("cortex.cli.budgets.change:set_", "Set a limit, new or not."),
            "raise": ("cortex.cli.budgets.change:raise_", "Raise a limit; jobs that wait go on."),
            "rm": ("cortex.cli.budgets.change:rm", "Remove a limit; jobs that wait go on."),
        },
    },
)
