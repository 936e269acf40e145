"""`cortex agents`: the group; each verb has its own file."""

from cortex.cli.options import Group

agents = Group(
    "agents",
    help="Apply, list and show agents.\n\n"
    "An agent is a series of versions that never change; a job keeps the one it started with.",
    sections={
        "Look": {
            "ls": ("cortex.cli.agents_ls:ls", "List agents with their newest versions."),
            "show": ("cortex.cli.agents_ls:show", "Show one agent."),
        },
        "Act": {"apply": ("cortex.cli.agents_apply:apply", "Apply agents from YAML files.")},
    },
)
