"""`cortex quotas`: the group; each verb has its own file."""

from cortex.cli.options import Group

quotas = Group(
    "quotas",
    help=(
        "Limit how often, or for how much, a tool may change something "
        "outside.\n\nThe limit applies to all pods together, per UTC hour or "
        "day. Jobs that exceed it wait; none fails."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.quotas.ls:ls", "List quotas and their remaining amounts.")},
        "Change": {
            "set": ("cortex.cli.quotas.change:set_", "Set a quota, new or existing."),
            "rm": ("cortex.cli.quotas.change:rm", "Remove a quota; waiting jobs continue."),
        },
    },
)
