"""`cortex breakers`: the group; each verb has its own file."""

from cortex.cli.options import Group

breakers = Group(
    "breakers",
    help=(
        "List circuit breakers, open and close them.\n\nThere is one for each "
        "model, tool, host and channel that failed lately. While it is open, "
        "jobs that need it wait without using a retry."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.breakers.ls:ls", "List breakers and the jobs they hold back.")
        },
        "Change": {
            "open": ("cortex.cli.breakers.force:open_", "Hold a breaker open."),
            "close": ("cortex.cli.breakers.force:close", "Close a breaker now."),
        },
    },
)
