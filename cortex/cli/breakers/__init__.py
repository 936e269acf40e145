"""`cortex breakers`: the group; each verb has its own file."""

from cortex.cli.options import Group

breakers = Group(
    "breakers",
    help="Look at circuit breakers, open and close them.\n\n"
    "There is one for each model, tool, host and channel that failed lately. While it is open, "
    "jobs that need it wait without losing a retry.",
    sections={
        "Look": {"ls": ("cortex.cli.breakers.ls:ls", "List breakers and what waits for them.")},
        "Act": {
            "open": ("cortex.cli.breakers.force:open_", "Hold a breaker open."),
            "close": ("cortex.cli.breakers.force:close", "Close a breaker now."),
        },
    },
)
