"""`cortex effects`: the group; each verb has its own file."""

from cortex.cli.options import Group

effects = Group(
    "effects",
    help=(
        "List calls that change something outside, and resolve those with an "
        "unknown outcome.\n\nAn effect is named by its id or by the end of it."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.effects.ls:ls", "List effects and their states."),
            "show": ("cortex.cli.effects.show:show", "Show everything recorded about an effect."),
        },
        "Change": {
            "resolve": (
                "cortex.cli.effects.resolve:resolve",
                "Record whether an unknown effect was applied.",
            ),
        },
    },
)
