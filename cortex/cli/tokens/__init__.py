"""`cortex tokens`: the group; each verb has its own file."""

from cortex.cli.options import Group

tokens = Group(
    "tokens",
    help="Let people and programs use the HTTP API.\n\n"
    "A token is named by its id, by the end of it, or by its person if there is only one.",
    sections={
        "Look": {"ls": ("cortex.cli.tokens.ls:ls", "List tokens and when they were used.")},
        "Act": {
            "create": ("cortex.cli.tokens.create:create", "Make a token and show it, once."),
            "revoke": ("cortex.cli.tokens.revoke:revoke", "Revoke a token: it opens nothing more."),
        },
    },
)
