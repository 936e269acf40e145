"""`cortex agents`: the group; each verb has its own file."""

from cortex.cli.options import Group

agents = Group(
    "agents",
    help=(
        "Apply, list and show agents.\n\nAn agent is a series of immutable "
        "versions; a job keeps the version it started with."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.agents.ls:ls", "List agents with their newest versions."),
            "show": ("cortex.cli.agents.ls:show", "Show one agent."),
        },
        "Change": {"apply": ("cortex.cli.agents.apply:apply", "Apply agents from YAML files.")},
    },
)
