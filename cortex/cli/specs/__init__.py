"""`cortex agents` and `cortex flows`: the groups; each verb has its own file."""

from cortex.cli.options import Group

agents = Group(
    "agents",
    help=(
        "Apply, list and show agents.\n\nAn agent is a series of immutable "
        "versions; a job keeps the version it started with."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.specs.ls:ls_agents", "List agents with their newest versions."),
            "show": ("cortex.cli.specs.ls:show_agent", "Show one agent."),
        },
        "Change": {
            "apply": ("cortex.cli.specs.apply:apply_agents", "Apply agents from YAML files."),
            "trust": (
                "cortex.cli.specs.trust:trust",
                "Accept what an MCP server says of its tools now.",
            ),
        },
    },
)
flows = Group(
    "flows",
    help=(
        "Apply, check, draw, list and show flows.\n\nA flow is a series of immutable versions; a "
        "job keeps the version it was submitted with: "
        "`cortex jobs submit run_flow --arg flow=NAME`."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.specs.ls:ls_flows", "List flows with their newest versions."),
            "show": ("cortex.cli.specs.ls:show_flow", "Show one flow."),
            "graph": ("cortex.cli.specs.graph:graph", "Draw the steps of a flow."),
            "validate": (
                "cortex.cli.specs.apply:validate",
                "Check YAML files without a database.",
            ),
        },
        "Change": {"apply": ("cortex.cli.specs.apply:apply_flows", "Apply flows from YAML files.")},
    },
)
