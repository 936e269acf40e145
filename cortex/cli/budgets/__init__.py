"""`cortex budgets`: the group."""

from cortex.cli.options import Group

budgets = Group(
    "budgets",
    help="Limit the money and tokens of agents, tenants and jobs.",
    sections={
        "Inspect": {
            "ls": ("cortex.cli.budgets.ls:ls", "List budgets and their remaining amounts.")
        },
        "Change": {
            "set": ("cortex.cli.budgets.change:set_", "Set a limit, new or existing."),
            "raise": (
                "cortex.cli.budgets.change:raise_",
                ("Raise a limit; waiting jobs continue."),
            ),
            "rm": ("cortex.cli.budgets.change:rm", "Remove a limit; waiting jobs continue."),
        },
    },
)
