"""`cortex quotas`: the group; each verb has its own file."""

from cortex.cli.options import Group

quotas = Group(
    "quotas",
    help=(
        "Limit how often, or for how much, a tool may change something "
        "outside.\n\nThe limit applies to all pods together, per UTC hour or "
        "day. Jobs that exceed it wait; none fails. "
        "A cap limits the jobs that a tenant may have waiting."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.quotas.ls:ls", "List quotas and their remaining amounts."),
            "caps": ("cortex.cli.quotas.caps:caps", "List caps of the jobs of tenants."),
        },
        "Change": {
            "set": ("cortex.cli.quotas.change:set_", "Set a quota, new or existing."),
            "rm": ("cortex.cli.quotas.change:rm", "Remove a quota; waiting jobs continue."),
            "cap": ("cortex.cli.quotas.caps:cap", "Cap the unfinished jobs of a tenant."),
            "uncap": ("cortex.cli.quotas.caps:uncap", "Remove the cap of a tenant."),
        },
    },
)
