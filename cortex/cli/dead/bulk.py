"""`cortex dead acts`: the group; each verb has its own file."""

from cortex.cli.options import Group

acts = Group(
    "acts",
    help=(
        "Follow, pause or cancel bulk operations on dead letters.\n\nPods work a "
        "bulk operation off, without the command that started it."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.dead.bulk_ls:ls", "List bulk operations, running ones first."),
            "show": ("cortex.cli.dead.bulk_ls:show", "Show its progress and failures."),
            "watch": ("cortex.cli.dead.bulk_watch:watch", "Follow it until it is over."),
        },
        "Change": {
            "pause": ("cortex.cli.dead.bulk_change:pause", "Pause it."),
            "resume": ("cortex.cli.dead.bulk_change:resume", "Resume it."),
            "cancel": (
                "cortex.cli.dead.bulk_change:cancel",
                ("Cancel it; the rest stays as it is."),
            ),
        },
    },
)
