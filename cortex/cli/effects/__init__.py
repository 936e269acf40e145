"""`cortex effects`: the group; each verb has its own file."""

from cortex.cli.options import Group

effects = Group(
    "effects",
    help="Look at calls that change something outside, and say what became of unknown ones.\n\n"
    "An effect is named by its id or by the end of it.",
    sections={
        "Look": {
            "ls": ("cortex.cli.effects.ls:ls", "List effects and how they stand."),
            "show": ("cortex.cli.effects.show:show", "Show all that is known of an effect."),
        },
        "Act": {
            "resolve": (
                "cortex.cli.effects.resolve:resolve",
                "Say whether an unknown effect was applied.",
            ),
        },
    },
)
