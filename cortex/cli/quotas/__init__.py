"""`cortex quotas`: the group; each verb has its own file."""

from cortex.cli.options import Group

quotas = Group(
    "quotas",
    help="Limit how often, or for how much, a tool may change something outside.\n\n"
    "All pods together begin no more of its effects in an hour or a day of UTC. Jobs that come to "
    "one too many wait, none fails.",
    sections={
        "Look": {"ls": ("cortex.cli.quotas.ls:ls", "List quotas and what is left of them.")},
        "Act": {
            "set": ("cortex.cli.quotas.change:set_", "Set a quota, new or not."),
            "rm": ("cortex.cli.quotas.change:rm", "Remove a quota; jobs that wait go on."),
        },
    },
)
