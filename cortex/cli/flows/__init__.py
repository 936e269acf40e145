"""`cortex flows`: the group; each verb has its own file."""

from cortex.cli.options import Group

flows = Group(
    "flows",
    help=(
        "Apply, check, draw, list and show flows.\n\nA flow is a series of immutable versions; a "
        "job keeps the version it was submitted with: "
        "`cortex jobs submit run_flow --arg flow=NAME`."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.flows.ls:ls", "List flows with their newest versions."),
            "show": ("cortex.cli.flows.ls:show", "Show one flow."),
            "graph": ("cortex.cli.flows.graph:graph", "Draw the steps of a flow."),
            "validate": (
                "cortex.cli.flows.apply:validate",
                "Check YAML files without a database.",
            ),
        },
        "Change": {"apply": ("cortex.cli.flows.apply:apply", "Apply flows from YAML files.")},
    },
)
