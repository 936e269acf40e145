"""`cortex dead acts`: the group; each verb has its own file."""

from cortex.cli.options import Group

acts = Group(
    "acts",
    help="Follow what was begun for many dead letters at once, pause it, or end it.\n\n"
    "Pods work an act off, whether or not who began it is still there.",
    sections={
        "Inspect": {
            "ls": ("cortex.cli.dead.bulk_ls:ls", "List acts, those under way first."),
            "show": ("cortex.cli.dead.bulk_ls:show", "Tell how far one is, and what failed."),
            "watch": ("cortex.cli.dead.bulk_watch:watch", "Follow one until it is over."),
        },
        "Change": {
            "pause": ("cortex.cli.dead.bulk_change:pause", "Let one rest."),
            "resume": ("cortex.cli.dead.bulk_change:resume", "Let one go on."),
            "cancel": ("cortex.cli.dead.bulk_change:cancel", "End one: the rest stays as it is."),
        },
    },
)
